"""Items go into a box's table through the caller's own transaction.

``insert`` is the way in. ``numbered`` and ``known_rows`` are the ways of rows with a ``sequence`` and of rows that the table may
already have. ``choosing`` finds the statements of the database, ``sequence`` gives out gapless numbers, and ``size_in_force``
refuses a wrong number of buckets.
"""
