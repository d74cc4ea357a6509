"""The type of row ids."""

from __future__ import annotations

from typing import Any, TypeAlias
from zlib import crc32

ItemId: TypeAlias = Any
"""The id of a row: hashable, ordered as the rows of its box are delivered, and with a text that is unique within the box.

It is an integer in every SQL table; another store may have text, or a type of its database's own. The engine compares ids and
passes them on, but never computes with them. Where reading may begin at the start, None stands for "after no row".

This is not a protocol, because mappings are invariant in their keys. ``Item.id`` says ``int``, since that is what users have and
what type checkers should know.
"""


def number_of(item_id: ItemId) -> int:
    """A number derived from the id: the id itself if it is a number."""
    return item_id if isinstance(item_id, int) else crc32(str(item_id).encode())
