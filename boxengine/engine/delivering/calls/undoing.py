"""How what was written in a savepoint is undone."""

from __future__ import annotations


class Undo(Exception):
    """Leaves a savepoint, so that what was written in it is undone. Whoever raises it catches it."""
