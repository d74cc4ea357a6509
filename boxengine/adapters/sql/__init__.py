"""Boxes in a relational database.

The rooms, each imports only those that stand before it:

- ``connecting``: connections, cursors, the driver's errors.
- ``sessions``: the session that a caller passes in, and those that handlers get.
- ``shape``: the columns, models and indexes of a box's table, and how a table really looks.
- ``waking``: wake-ups through ``LISTEN`` and ``NOTIFY``.
- ``dialects``: everything that differs from one database to another.
- ``log``: boxes with ``storage: log``.
- ``creating``: items go in, through the caller's transaction.
- ``delivering``: the store, through which the engine claims rows and records outcomes.
- ``receiving``: an inbox stores received messages.
- ``making``: tables are made, checked and upgraded.
- ``looking``: rows are found, counted, shown and changed for people.
- ``checking``: what ``boxengine doctor`` finds in a database.
- ``converting``: a box goes from table to log, or back.
- ``jobs``: long jobs, on tables of their own.
"""
