"""A file of lines that other processes append to, read while it grows."""

from __future__ import annotations

from pathlib import Path

MOST = 1 << 20
"""Bytes of one look, so that memory stays bounded however far behind the reader is."""


class Growing:
    """What has come since the last look."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""

    def lines(self) -> list[list[bytes]]:
        """The fields of the next whole lines; some at least, if there are any."""
        *lines, self._rest = (self._rest + self._file.read(MOST)).split(b"\n")
        return [line.split() for line in lines]

    def close(self) -> None:
        self._file.close()
