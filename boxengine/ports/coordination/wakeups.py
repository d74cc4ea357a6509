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
    """None: not known."""
    due: bool = True
    """Whether the row may go out at once; if not, its bucket is only worth a look."""
    again: bool = False
    """Whether the row may be an old one, pending again, that comes before rows that are done. No bucket is named then."""

    def encode(self) -> str:
        """``box``, ``box:again``, ``box:bucket``, or ``box:bucket?`` if the row is not due yet."""
        if self.again:
            return f"{self.box_name}:{_AGAIN}"
        if self.bucket is None:
            return self.box_name
        return f"{self.box_name}:{self.bucket}{'' if self.due else '?'}"

    @classmethod
    def decode(cls, text: str) -> Signal:
        """The signal in a message. A foreign message on the channel decodes to the name of a box that nobody knows."""
        box_name, colon, bucket = text.rpartition(":")
        if colon and bucket == _AGAIN:
            return cls(box_name, None, again=True)
        number = bucket.removesuffix("?")
        # A longer number is no bucket, and Python refuses to convert thousands of digits.
        if colon and number.isascii() and number.isdigit() and len(number) < _TOO_LONG:
            return cls(box_name, int(number), due=number == bucket)
        return cls(text, None)


class Wakeups(Protocol):
    """Hints that rows were committed. Lossy by design: a lost one costs one poll interval."""

    reliable: bool
    """Whether hints arrive at all now (a listener is connected). If not, the poller looks more often by itself."""

    def wait(self, timeout: timedelta) -> list[Signal]:
        """Blocks until at least one signal has come or the time is over; returns the signals so far, in order of arrival."""

    def close(self) -> None:
        """Lets a blocked ``wait`` return, and frees the connection."""
