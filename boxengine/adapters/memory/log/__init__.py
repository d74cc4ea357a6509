"""``storage: log`` in memory: the twin of ``boxengine.adapters.sql.log``.

``transactions`` counts transactions as PostgreSQL does, and writes snapshots of them. ``shared`` holds the rows of a log,
``table`` the positions and the side table of one who reads it: the box itself, or a subscription. ``store`` serves such
boxes beside others; writers there have transactions of their own, which commit in any order. What a position means and
how far a settlement moves it is the same code for both: ``boxengine.domain.log_progress``.
"""
