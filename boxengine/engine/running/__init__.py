"""The worker as a process: its threads, their health, the leases' length, and an orderly stop.

- ``worker`` starts and stops it all in order, with ``closing`` for connections; ``threads`` repeat the turns.
- ``health`` says whether the worker is alive and ready; ``server_check`` asks one server. ``outages`` tells of a failure once,
  and ``proof`` keeps one from ending too early.
- ``lease_length`` decides how long leases last. ``heartbeat`` announces the worker, ``backlog`` measures how far behind the
  boxes are, ``history`` counts for the console's charts, and ``table_watch`` notices altered tables. ``rounds`` limits a turn
  over many boxes.
"""
