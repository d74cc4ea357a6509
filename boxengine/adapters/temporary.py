"""Temporary folders of processes that run for months."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def spared(folder: str) -> Iterator[None]:
    """Keeps systemd from deleting what is in a temporary folder while the block runs.

    It deletes what nobody has opened for some days, as a file that processes read at their start, and spares what is in a
    folder that somebody has locked.
    """
    try:
        import fcntl  # noqa: PLC0415 - not everywhere
    except ModuleNotFoundError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)
