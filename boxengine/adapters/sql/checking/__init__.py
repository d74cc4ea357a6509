"""What ``boxengine doctor`` and ``db check`` find in a database: ``checkup`` asks ``autovacuum``, ``bloat`` and ``held_back``."""
