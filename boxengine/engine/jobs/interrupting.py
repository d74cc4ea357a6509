"""Stops a handler in the middle of its own code."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from boxengine.errors import JobLost


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """While the block runs, what it yields makes ``JobLost`` rise in this thread, at the next line of Python.

    A call that is waiting in C (a socket, a lock, a computation of NumPy's) comes to its end first: threads cannot be
    stopped there.
    """
    target = _Target(threading.get_ident())
    try:
        yield target.hit
    finally:
        target.leave()


class _Target:
    def __init__(self, thread: int) -> None:
        self._thread = ctypes.c_ulong(thread)
        self._lock = threading.Lock()
        self._there = True

    def hit(self) -> None:
        # Not waited for: the thread may have been hit just where it held the lock.
        if self._lock.acquire(blocking=False):
            try:
                if self._there:
                    _raise_in(self._thread, JobLost)
            finally:
                self._lock.release()

    def leave(self) -> None:
        with self._lock:
            self._there = False
            # One that was raised and has not risen yet would hit whatever this thread does next.
            _raise_in(self._thread, None)


def _raise_in(thread: ctypes.c_ulong, error: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, None if error is None else ctypes.py_object(error))
