"""SIGUSR1: logs what every thread is doing. For a process that seems to hang."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from queue import SimpleQueue

from boxengine.cli.signals import TELLING

logger = logging.getLogger("boxengine.stacks")
MOST_FRAMES = 40
"""How many frames of a thread are logged, the innermost."""


class Stacks:
    """Logs the stacks of all threads, and what each is working on, at each SIGUSR1."""

    def __init__(self) -> None:
        """Installs the handler: from now on SIGUSR1 does not end the process."""
        self.in_hand: Callable[[], Mapping[int, object]] = dict
        """What each thread is working on, by its identifier."""
        self.pass_on: Callable[[], None] = lambda: None
        """Called in the signal handler; a parent passes the signal on to its children here."""
        self._asked: SimpleQueue[None] = SimpleQueue()
        # A handler interrupts the main thread, which may hold locks that logging needs: another thread does the logging.
        threading.Thread(target=self._run, name="boxengine-stacks", daemon=True).start()
        signal.signal(TELLING, self._handle)

    def _handle(self, _number: int, _frame: object) -> None:
        self._asked.put(None)
        self.pass_on()

    def _run(self) -> None:
        while True:
            self._asked.get()
            try:
                self._tell()
            except Exception:
                logger.exception("the stacks could not be logged")

    def _tell(self) -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        in_hand, this, pid = self.in_hand(), threading.get_ident(), os.getpid()
        frames = sys._current_frames()  # noqa: SLF001 - documented for exactly this
        threads = sorted((names.get(ident, f"thread {ident}"), ident) for ident in frames if ident != this)
        logger.warning("SIGUSR1 received: the stacks of %d threads follow", len(threads), extra={"pid": pid})
        for name, ident in threads:
            work = in_hand.get(ident)
            logger.warning(
                "%s, %s:\n%s",
                name,
                "with nothing in hand" if work is None else f"at {work}",
                "".join(traceback.format_stack(frames[ident], MOST_FRAMES)).rstrip(),
                extra={"pid": pid},
            )
