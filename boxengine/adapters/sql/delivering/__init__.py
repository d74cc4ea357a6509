"""The store: due rows are claimed and outcomes recorded, in one transaction.

``store`` opens each ``claim`` on a ``transaction``. ``statements`` chooses the dialect. ``weighing`` keeps a claim within its
bytes, and ``narrowing`` finds the rows whose outcomes the table refuses. ``bounding`` and ``fronts`` know where pending rows
begin, for workers and for processes that only look; ``stranded`` finds rows that nobody polls.
"""
