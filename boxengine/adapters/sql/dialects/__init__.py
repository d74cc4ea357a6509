"""Everything that differs from one database to another.

Deliveries: ``base`` says what a dialect has to offer, ``postgresql`` and ``mysql`` offer it, with the statements that
``postgresql_texts`` and ``mysql_texts`` make for a table; ``postgresql_reads`` has those that read pending rows. ``branch`` reads
many buckets without ``LATERAL``, ``unreadable`` decodes what it can of broken rows, ``payloads`` limits their size, and
``comments`` names the box in each statement.

Inserts: ``inserts`` says what is needed, ``postgresql_inserts``, ``mysql_inserts`` and ``sqlite_inserts`` have it.
``one_row`` and ``copying`` are faster ways in for one row and for many, with values converted by ``values``.
"""
