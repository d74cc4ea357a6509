"""Limits for the size of payloads, single ones and a batch's together."""

from __future__ import annotations

from operator import itemgetter

from boxengine.domain.item import Item

MAX_BATCH_BYTES = 64 * 1024 * 1024
"""Limit for all payloads of a batch, unless the configuration sets another."""
MOST_ROWS = 2000
"""Rows of the largest batch. So many payloads, each just light enough to come with its row, together reach the batch's limit."""
payload_of = itemgetter(Item._fields.index("payload"))
"""Reads the payload of a row or of an item, which begins with the same fields."""


def light(max_batch_bytes: int) -> int:
    """Bytes up to which a payload comes with its row."""
    return max(1, max_batch_bytes // MOST_ROWS)
