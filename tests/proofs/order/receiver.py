"""The transport of the proof: appends what it takes to one file, whichever worker process it is in.

A batch is one write to a handle opened for appending, so the file has the order in which batches were received, and what a
killed worker had written is there. A line that a kill cut short has no mark at its end; the next write begins on a new line.
Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

END = b";"


class Receiver:
    """Takes whole batches; refuses an item as often as its payload says."""

    def __init__(self, *, path: str) -> None:
        """Args:
        path: of the record.
        """
        self._handle = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)

    def call_batch(self, items: Sequence[Any]) -> list[bool]:
        answers, lines = [], [b"\n"]
        for item in items:
            number, place, refusals, _ = bytes(item.payload).split(b" ", 3)
            answers.append(item.errors_count >= int(refusals))
            if answers[-1]:
                lines.append(b"%s %s %s\n" % (number, place, END))
        os.write(self._handle, b"".join(lines))
        return answers


def received(lines: Iterable[list[bytes]]) -> list[tuple[int, int]]:
    """Number and place of each item that lines of the record tell of, in order; lines that were cut short are left out."""
    return [(int(fields[0]), int(fields[1])) for fields in lines if fields[2:] == [END]]
