"""The processes of one box: begun when they are needed, kept for the next job, replaced when they have died."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from boxengine.adapters.processes.child import Child, Start
from boxengine.ports.job_processes import ProcessGone


class ProcessPool:
    """``HandlerProcesses``. As many processes as threads have borrowed at once."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    @contextmanager
    def borrow(self) -> Iterator[Child]:
        child = self._idle_one() or self._new_one()
        try:
            yield child
        finally:
            self._return(child)

    def close(self) -> None:
        """Ends all of them, also those that run a job. No further ones begin."""
        with self._lock:
            self._closed = True
            children = list(self._all)
            idle, self._idle = self._idle, []
        for child in children:
            child.kill()
        for child in idle:
            self._forget(child)

    def _idle_one(self) -> Child | None:
        while True:
            with self._lock:
                if self._closed:
                    raise ProcessGone("was ended, because the worker stops,")
                if not self._idle:
                    return None
                child = self._idle.pop()
            if child.alive:
                return child
            self._forget(child)

    def _new_one(self) -> Child:
        child = Child(self._start)
        with self._lock:
            self._all.add(child)
            if self._closed:
                # close() has not seen it; whoever borrows it meets that at once.
                child.kill()
        return child

    def _return(self, child: Child) -> None:
        with self._lock:
            if child.alive and not self._closed:
                self._idle.append(child)
                return
        self._forget(child)

    def _forget(self, child: Child) -> None:
        child.end()
        with self._lock:
            self._all.discard(child)
