"""Log lines on their way to standard error, written by a thread of their own.

If a log collector hangs, its pipe is full after 64 kB, and every further write waits. No thread that delivers, and no signal
handler, may wait for that.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from queue import SimpleQueue

MOST_WAITING = 8_000_000
"""Bytes. While this much waits to be written, new lines are dropped and counted."""
FLUSH_TIME = 1.0
"""Seconds that the end of the process waits for lines to be written."""


class BackgroundHandler(logging.Handler):
    """Writes to a file descriptor without ever making the caller wait."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._begin()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
            if self._process != os.getpid():
                self._begin()  # the thread did not come along through a fork, or ended when logging.config closed all handlers
        except Exception:
            self.handleError(record)
            return
        # Called under the handler's lock, as are all that change these two.
        if self._queued - self._written + len(line) > MOST_WAITING:
            self.dropped += 1
            return
        self._queued += len(line)
        self._lines.put(line)

    @property
    def clogged(self) -> bool:
        """Whether lines cannot be written just now, or so many wait that the next ones may be dropped."""
        return self._failing or self._queued - self._written > MOST_WAITING // 2

    def flush(self) -> None:
        """Waits until all is written, but not for long."""
        if self._process != os.getpid():
            return
        written = threading.Event()
        self._lines.put(written)
        written.wait(FLUSH_TIME)

    def close(self) -> None:
        self.flush()
        self._lines.put(None)
        self._process = 0
        super().close()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lines: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()
        self._queued = self._written = 0
        self.dropped = 0
        self._lost = self._told = 0
        self._failing = False
        threading.Thread(target=self._run, name="boxengine-log", daemon=True).start()

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            self._write(line)
            self._written += len(line)
            missing = self.dropped + self._lost - self._told
            if missing and not self._failing and self._write(self._notice(missing)):
                self._told += missing

    def _write(self, line: bytes) -> bool:
        rest = memoryview(line)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:
                    select.select([], [self._descriptor], [])
        except OSError:
            # The disk is full, or the reader has gone. There is nowhere to report it.
            self._failing = True
            self._lost += 1
            return False
        self._failing = False
        return True

    def _notice(self, missing: int) -> bytes:
        said = "%d log lines are missing here: they could not be written, or nobody read them in time"
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, (missing,), None)
        return f"{self.format(record)}\n".encode(errors="backslashreplace")
