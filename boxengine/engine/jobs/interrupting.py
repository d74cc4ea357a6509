"""Stops a handler in the middle of its own code."""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from typing import Protocol

from boxengine.errors import JobLost


class Interrupt(Protocol):
    """Stops a handler, from any thread."""

    def __call__(self, error: type[BaseException] = JobLost, /) -> None: ...


class interruptible:  # noqa: N801 - used like a function: with interruptible() as interrupt
    """Gives a function that raises an error in this thread, at its next line of Python, while the block runs.

    A call that is waiting in C (a socket, a lock, a computation of NumPy's) returns first, because threads cannot
    be stopped there.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._there = True
        self._was_hit = False

    def __enter__(self) -> Interrupt:
        return self._hit

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._there = False
        if self._was_hit:
            _take_back(self._thread)

    def _hit(self, error: type[BaseException] = JobLost) -> None:
        # It does not wait for the lock: the thread may have been hit while it held it.
        if self._lock.acquire(blocking=False):
            try:
                if self._there:
                    self._was_hit = True
                    _raise_in(self._thread, error)
            finally:
                self._lock.release()


class _Withdrawn(BaseException):
    """Replaces an error that has not been raised yet."""


def _take_back(own: int) -> None:
    """Removes an error that was sent to this thread and has not been raised yet, before it hits what the thread does next.

    It is replaced and caught. NULL would clear it too, but leaves the interpreter looking for it at every step from then on:
    all threads become slower, and under a tracer Python 3.11 hangs.
    """
    with suppress(_Withdrawn):
        _raise_in(own, _Withdrawn)
        while True:
            pass


def _raise_in(thread: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
