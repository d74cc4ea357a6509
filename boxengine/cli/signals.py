"""Signals: which ones stop a process, when a second one ends it at once, and how they are blocked until a process is ready."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from boxengine.adapters.forked import end_forked_by_sigterm

IMPATIENT = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Each of these stops the process; a second one ends it at once."""
STOPPING = (*IMPATIENT, signal.SIGHUP)
"""SIGHUP only stops. A shell and the kernel both send it when a terminal closes, and systemd may send it right after SIGTERM,
so a second one does not mean that a person has lost patience."""
TELLING = signal.SIGUSR1
"""Asks the process to log what every thread does."""
ONE_WISH = 0.3
"""Seconds. Wrappers such as `timeout` and `npm` repeat a signal that the terminal has already sent; nobody presses Ctrl-C twice
that fast."""
LOOK_AGAIN = 1.0
"""Seconds. If the kernel gives a signal to another thread, nothing wakes the main thread, and only it can run the handler."""


class StopRequest:
    """Whether this process has been asked to stop. Any thread may ask, and so may a signal handler."""

    def __init__(self) -> None:
        # A threading.Event would deadlock: a handler interrupts the main thread, which may hold the event's lock.
        self._asked: SimpleQueue[None] = SimpleQueue()
        self.is_set = False

    def ask(self) -> None:
        """Asks the process to stop."""
        self.is_set = True
        self._asked.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits at most ``timeout`` seconds, and returns whether the process must stop. For one thread only."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not self.is_set and (left := until - time.monotonic()) > 0:
            with suppress(Empty):
                self._asked.get(timeout=min(left, LOOK_AGAIN))
        return self.is_set


def stop_request(
    *, on_stop: Callable[[], None] = lambda: None, before_end: Callable[[], None] = lambda: None
) -> StopRequest:
    """Installs the signal handlers. The first signal makes the request; a second one ends the process at once.

    If SIGHUP is ignored, as under nohup, it stays ignored.

    Args:
        on_stop: called in the signal handler at the first signal.
        before_end: called in the handler before the process ends at once.
    """
    request = StopRequest()
    first: float | None = None

    def handle(number: int, _frame: object) -> None:
        nonlocal first
        if number in IMPATIENT:
            now = time.monotonic()
            if first is None:
                first = now
            elif now - first > ONE_WISH:
                before_end()
                os._exit(128 + number)
        if not request.is_set:
            request.ask()
            on_stop()

    for number in _heeded(STOPPING):
        signal.signal(number, handle)
    end_forked_by_sigterm(handle)
    return request


def end_while_starting() -> None:
    """Makes the signals end the first process of a container, as they end any other, until ``stop_request``.

    The kernel drops a signal that this process has no handler for: the worker would start, and be killed at the end of the
    grace period. A shell without job control starts what stands before ``&`` with SIGINT and SIGQUIT ignored; this process
    heeds them all the same, as it does once it has started.
    """
    if os.getpid() != 1:
        return
    for number in _heeded(STOPPING):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(number, lambda number, _frame: os._exit(128 + number))


@contextmanager
def stoppable(*, on_stop: Callable[[], None] = lambda: None) -> Iterator[StopRequest]:
    """As ``stop_request``, for the length of this block: what heeded the signals before heeds them afterwards."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    try:
        yield stop_request(on_stop=on_stop)
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def stop_like_ctrl_c() -> None:
    """SIGINT, SIGTERM and SIGHUP raise ``KeyboardInterrupt`` in the main thread from now on.

    A shell without job control starts what stands before ``&`` with SIGINT ignored; this process heeds it all the same.
    If SIGHUP is ignored, as under nohup, it stays ignored.
    """
    for number in _heeded((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        signal.signal(number, signal.default_int_handler)


def _heeded(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Without SIGHUP if this process runs under nohup."""
    return [each for each in numbers if each != signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN]


def stop_with_parent(request: StopRequest) -> None:
    """Asks to stop when standard input ends. The parent holds the other end, which closes however the parent ends.

    From now on, standard input is the null device: a program that a handler starts, and that reads its input to the end, would
    wait for the parent's end.
    """
    lifeline, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def watch() -> None:
        os.read(lifeline, 1)
        request.ask()

    threading.Thread(target=watch, name="boxengine-parent", daemon=True).start()


@contextmanager
def held_back_in_children() -> Iterator[None]:
    """A process started within this block receives this module's signals only after it calls ``let_through``."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPPING, TELLING))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """Unblocks the signals that the parent has blocked; those that waited for this process's handlers arrive now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*STOPPING, TELLING))
