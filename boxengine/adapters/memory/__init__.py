"""In-memory twins of the ports, for tests and the simulation. They pass the same conformance suite as the real ones.

- **Rows:** ``store`` and its ``claims``, over the ``database`` that all handles share: ``rows`` of each box, with the bounds of
  ``bounding``. ``log`` has the boxes with ``storage: log``, ``jobs`` those of long jobs, and ``schedules`` what recurs.
- **Coordination:** ``queue``, ``leases``, ``pauses``, ``wakeups``, ``workers``, ``failures``, ``in_hand``.
- **For people:** ``attempts``, ``history``, ``trail``.
- **Around them:** ``clock`` (moves when told to), ``source`` (a log of messages).
"""
