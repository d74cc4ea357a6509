"""What names a row of a box."""

from __future__ import annotations

from typing import Any, TypeAlias
from zlib import crc32

ItemId: TypeAlias = Any
"""The id of a row: hashable, ordered as the rows of its box are delivered, and with a text that no other row of the box has.

It is an integer in every SQL table; another store may have text, or what its database makes. The engine compares ids and
passes them on, and never computes with them. Where reading may begin at the start, None stands for "after no row".

No protocol, because mappings are invariant in their keys. ``Item.id`` says ``int``: that is what users have, and type checkers
are to know it.
"""


def number_of(item_id: ItemId) -> int:
    """A number that follows from the id: the id itself where it is one."""
    return item_id if isinstance(item_id, int) else crc32(str(item_id).encode())
