"""Hints that rows were committed."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple, Protocol

_TOO_LONG = 10
"""Digits of a bucket."""
_AGAIN = "again"


class Signal(NamedTuple):
    """Somebody committed a row for this box."""

    box_name: str
    bucket: int | None
    """Where it is known."""
    due: bool = True
    """Whether the row may go out at once; if not, its bucket is worth a look, no more."""
    again: bool = False
    """Whether the row may be an old one that is pending again, before others that are done. Then no bucket is named."""

    def encode(self) -> str:
        """``box``, ``box:again``, ``box:bucket``, or ``box:bucket?`` where the row is not due yet."""
        if self.again:
            return f"{self.box_name}:{_AGAIN}"
        if self.bucket is None:
            return self.box_name
        return f"{self.box_name}:{self.bucket}{'' if self.due else '?'}"

    @classmethod
    def decode(cls, text: str) -> Signal:
        """The signal in a message; what somebody else sends on the channel is the name of a box that nobody knows."""
        box_name, colon, bucket = text.rpartition(":")
        if colon and bucket == _AGAIN:
            return cls(box_name, None, again=True)
        number = bucket.removesuffix("?")
        # Longer ones are no buckets, and Python refuses to read thousands of digits.
        if colon and number.isascii() and number.isdigit() and len(number) < _TOO_LONG:
            return cls(box_name, int(number), due=number == bucket)
        return cls(text, None)


class Wakeups(Protocol):
    """Hints that rows were committed. Lossy by design: a lost one costs one poll interval."""

    reliable: bool
    """Whether hints come at all just now (a listener is connected); the poller looks by itself more often if not."""

    def wait(self, timeout: timedelta) -> list[Signal]:
        """Blocks until at least one signal came or the time is over; the signals so far, in order of arrival."""

    def close(self) -> None:
        """Lets a blocked ``wait`` return, and frees the connection."""
