"""The only place that touches the outside world and puts the parts together.

``boxes``: what applications call. ``servers``: the real adapters from the settings. ``assembly``: a worker of all its loops;
``jobs``: those of long jobs. ``running``: the process that they run in. ``receiving``: consumers that fill inboxes.
``overview``: what the console and ``boxengine status`` show. ``checking``: what is wrong with a configuration, its servers or
its items. ``asyncapi``: the document of what is sent.
"""
