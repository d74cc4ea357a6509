"""Connections to the database.

- **Made:** ``engine`` sets up the worker's connections, over a ``pool`` of its own. ``login`` asks for a password that may
  change. ``own_settings`` frees them from settings of the database or the account. ``writes`` refuses a server that takes no
  writes, ``pooler`` recognises a connection pooler, and ``identity`` tells databases apart. With PyMySQL, they share ``tls``.
- **Used:** ``cursors`` gives the driver's cursors. On PostgreSQL, ``round_trip`` sends a transaction's first statements together.
  ``reading`` gives connections for questions that only read. ``clock`` has the question for the database's time.
- **Limited:** ``limiting`` shortens a statement's time limit. ``packets`` refuses statements that are too long for MySQL or
  MariaDB.
- **Failed:** ``ended`` replaces idle connections that the server has ended. ``errors`` translates what the driver raises.
"""
