"""The only place that touches the outside world and puts the parts together.

``boxes``: what applications call to write items. ``servers``: the real adapters from the settings. ``assembly``: a
worker of all its loops. ``default``: the module-level functions' one shared ``Boxes``.
"""
