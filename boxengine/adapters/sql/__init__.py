"""Boxes in a relational database: models, schema, the store, wake-ups. ``dialects/`` holds what differs by database."""
