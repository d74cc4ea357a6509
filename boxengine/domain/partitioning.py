"""From an event key to a bucket.

The arithmetic is that of sbmt-outbox, so both can share one table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

Key = int | str | object
MOST_DIGITS = 4000
"""Python converts somewhat more digits at once, but not without limit."""
PartitionStrategy = Callable[[Key, int], int]
"""``(event_key, bucket_size) -> bucket`` in ``0..bucket_size - 1``."""


def number(key: Key, bucket_size: int) -> int:
    """The key modulo ``bucket_size``: an integer as it is, anything else by the digits of its text, or 0 if it has none."""
    if isinstance(key, int):
        return key % bucket_size
    # As with Ruby's \D, only 0 to 9 count, not the digits of other scripts.
    digits = "".join(filter("0123456789".__contains__, str(key)))
    if len(digits) <= MOST_DIGITS:
        return int(digits or 0) % bucket_size
    rest = 0
    for start in range(0, len(digits), MOST_DIGITS):
        part = digits[start : start + MOST_DIGITS]
        rest = (rest * 10 ** len(part) + int(part)) % bucket_size
    return rest


def hashed(key: Key, bucket_size: int) -> int:
    """SHA-1 of the key's text as one big integer, modulo ``bucket_size``."""
    return int.from_bytes(hashlib.sha1(str(key).encode(), usedforsecurity=False).digest(), "big") % bucket_size


BUILT_IN: dict[str, PartitionStrategy] = {"number": number, "hash": hashed}
