"""Rows for people: the console, ``boxengine items``, ``status`` and the audit.

``inspection`` finds rows, and ``items`` shows and changes them through the statements of ``item_rows`` and ``replays``.
``windows`` keeps each statement to a run of ids, ``moments`` finds the ids of a moment. ``census`` counts, and ``audit`` reads a
whole table, sorted by ``key_order`` where there is no index by key.
"""
