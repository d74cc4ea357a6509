"""Rows for people: the console, ``boxengine items``, ``status`` and the audit.

``inspection`` finds rows. Its parts are ``searching``, of which ``windows`` keeps each statement to a run of ids and ``moments``
finds the ids of a moment; ``in_line``, which knows what a row waits for; and ``table_state``. ``recent`` remembers answers for a
short time.

``items`` shows and changes rows through the statements of ``item_rows`` and ``replays``. ``log_rows`` shows those that stand in a
log alone.

``census`` counts rows by status, and ``counting`` pending ones, a few at a time. ``audit`` reads a whole table, sorted by
``key_order`` where there is no index by key.
"""
