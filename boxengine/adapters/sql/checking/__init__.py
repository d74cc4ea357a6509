"""What ``boxengine doctor`` and ``db check`` find in a database.

``checkup`` asks each kind of server in its own words (``server``, ``postgresql``, ``mysql``), with ``autovacuum``, ``bloat`` and
``held_back`` for what keeps dead rows, and ``ids`` for what runs out.
"""
