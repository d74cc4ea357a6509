"""How heavy payloads may be, one and all of a batch."""

from __future__ import annotations

from operator import itemgetter

from boxengine.domain.item import Item

MAX_BATCH_BYTES = 64 * 1024 * 1024
"""Of all payloads of a batch, unless the configuration says otherwise."""
MOST_ROWS = 2000
"""What a batch may hold at most; so many payloads that are just light enough weigh what a batch may weigh."""
payload_of = itemgetter(Item._fields.index("payload"))
"""Of a row as of an item, which begins with the row's fields."""


def light(max_batch_bytes: int) -> int:
    """Bytes up to which a payload comes with its row."""
    return max(1, max_batch_bytes // MOST_ROWS)
