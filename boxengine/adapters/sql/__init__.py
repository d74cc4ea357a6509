"""Boxes in a relational database: models, schema, the store, wake-ups. What differs by database is in ``dialects/``."""
