"""Recognises rows that a replay has made, or has made due again, by a header in their options: SQL over a row ``t``.

The options are compared as text, for they may be of any type, and need not be JSON. Percent signs are doubled, for drivers look
for placeholders.
"""

from __future__ import annotations

from boxengine.domain.item import REPLAY_OF


def is_marked(*, postgresql: bool) -> str:
    """Whether a replay has made the row, or has made it due again."""
    return mentions(REPLAY_OF, postgresql=postgresql)


def is_copy(*, postgresql: bool) -> str:
    """Whether the row is a copy of a delivered one."""
    return f"({is_marked(postgresql=postgresql)} AND NOT {names_itself(postgresql=postgresql)})"


def mentions(header: str, *, postgresql: bool) -> str:
    """Whether the row's options have the header."""
    return f"coalesce({'t.options::text' if postgresql else 't.options'} LIKE '%%\"{header}\"%%', false)"


def names_itself(*, postgresql: bool) -> str:
    """Of a marked row: whether it goes out again itself."""
    return "strpos(t.options::text, t.uuid::text) > 0" if postgresql else "instr(t.options, t.uuid) > 0"
