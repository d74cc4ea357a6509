"""What is wrong, before or while workers run.

``trying``: the configuration, for ``config check --deep``. ``shared_tables`` and ``bucket_sizes``: what a worker refuses to start
with. ``doctor``: the servers. ``auditing``: whether the items of a box all arrived, in order.
"""
