"""The store: due rows are claimed and outcomes recorded, in one transaction.

``store`` polls, and opens each ``claim`` on a ``transaction``. It is built on ``history`` (counts, ages, deletion), and that on
``asking``, which runs one question at a time. ``known`` looks up the tables, and ``statements`` chooses the dialect.
``weighing`` keeps a claim within its bytes, and ``narrowing`` finds the rows whose outcomes the table refuses. ``bounding`` (with
``bounding_mysql``) and ``fronts`` know where pending rows begin, for workers and for processes that only look; ``pending``
asks which tables have any;
``stranded`` finds rows that nobody polls.
"""
