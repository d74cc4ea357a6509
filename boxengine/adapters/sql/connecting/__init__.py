"""Connections to the database.

``engine`` sets up the worker's connections, over a ``pool`` of its own. ``cursors`` gives the driver's cursors, ``errors``
translates what they raise. ``writes`` refuses a server that takes no writes, ``pooler`` recognises a connection pooler,
``identity`` tells databases apart, and ``limiting`` shortens a statement's time limit.
"""
