"""The project: its settings."""
