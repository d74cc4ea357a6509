"""Hints that rows were committed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple, Protocol

_TOO_LONG = 10
"""Digits of a bucket."""
_AGAIN = "again"
MOST_NAMED = 256
"""Buckets that one transaction names. Beyond that it names its box alone: looking is then as cheap as listening."""


class Signal(NamedTuple):
    """Somebody committed a row for this box."""

    box_name: str
    bucket: int | None
    """None: not known."""
    due: bool = True
    """Whether the row may go out at once; if not, its bucket is only worth a look."""
    again: bool = False
    """Whether the row may be an old one, pending again, that comes before rows that are done. No bucket is named then.

    Of a box of long jobs: whether somebody has asked jobs at work to stop.
    """

    def encode(self) -> str:
        """``box``, ``box:again``, ``box:bucket``, or ``box:bucket?`` if the row is not due yet."""
        if self.again:
            return f"{self.box_name}:{_AGAIN}"
        if self.bucket is None:
            return self.box_name
        return f"{self.box_name}:{self.bucket}{'' if self.due else '?'}"

    @classmethod
    def decode(cls, text: str) -> list[Signal]:
        """The signals in a message. A foreign message on the channel decodes to the name of a box that nobody knows."""
        box_name, colon, names = text.rpartition(":")
        if colon and names == _AGAIN:
            return [cls(box_name, None, again=True)]
        named = names.removesuffix("?")
        numbers = named.split(",") if colon and len(named) < _TOO_LONG * MOST_NAMED else [""]
        # A longer number is no bucket, and Python refuses to convert thousands of digits.
        if all(number.isascii() and number.isdigit() and len(number) < _TOO_LONG for number in numbers):
            return [cls(box_name, int(number), due=named == names) for number in numbers]
        return [cls(text, None)]

    @staticmethod
    def encode_all(signals: Iterable[Signal]) -> list[str]:
        """The messages for these signals, each once; buckets of one box travel together, as ``box:3,7,12``."""
        named: dict[tuple[str, str], list[int]] = {}
        for signal in signals:
            if signal.bucket is None:
                named.setdefault((signal.encode(), ""), [])
            else:
                named.setdefault((f"{signal.box_name}:", "" if signal.due else "?"), []).append(signal.bucket)
        return [
            f"{box_name}{','.join(map(str, some))}{mark}"
            for (box_name, mark), buckets in named.items()
            for some in _in_parts(list(dict.fromkeys(buckets)))
        ]


def _in_parts(buckets: list[int]) -> list[list[int]]:
    return [buckets[start : start + MOST_NAMED] for start in range(0, len(buckets), MOST_NAMED)] or [[]]


class Wakeups(Protocol):
    """Hints that rows were committed. Lossy by design: a lost one costs one poll interval."""

    reliable: bool
    """Whether hints arrive at all now (a listener is connected). If not, the poller looks more often by itself."""
    beginnings: int
    """How often it has begun to listen. It may have heard nothing of commits shortly before the last beginning."""

    def wait(self, timeout: timedelta) -> list[Signal]:
        """Blocks until at least one signal has come, it has begun to listen, or the time is over.

        Returns the signals so far, in order of arrival.
        """

    def interrupt(self) -> None:
        """Lets a ``wait`` under way return, and each later one at once. Nothing is heard from here on. For any thread."""

    def close(self) -> None:
        """As ``interrupt``; also frees the connection."""
