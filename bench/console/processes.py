"""The processor time of PostgreSQL's processes, as Linux tells it in ``/proc``."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import NamedTuple, Self

TICK = os.sysconf("SC_CLK_TCK")
EVERY = 0.5
"""Seconds between two samples. What a session takes after its last sample is not seen."""
_FOR_SESSION = re.compile(r"parallel worker for PID (\d+)")


class _Stat(NamedTuple):
    parent: int
    own: float
    """Seconds."""
    reaped: float
    """Seconds of its children that have ended."""
    started: int
    """In ticks since the machine's start: tells apart two processes of one id."""


def whole(postmaster: int) -> float:
    """The seconds so far of all processes of a server: sessions, also those that have ended, and the server's own processes."""
    parent = _stat(postmaster)
    while parent is not None:
        live = [stat.own for pid in _children(postmaster) if (stat := _stat(pid))]
        before, parent = parent, _stat(postmaster)
        # If a child ended meanwhile, it would be counted twice or not at all.
        if parent is not None and parent.reaped == before.reaped:
            return parent.own + parent.reaped + sum(live)
    raise ProcessLookupError(f"no process {postmaster}")


def postmaster_of(session: int) -> int:
    """The process id of the server that this session belongs to."""
    stat = _stat(session)
    if stat is None:
        raise ProcessLookupError(f"no process {session}")
    return stat.parent


class Sessions:
    """The processor time of the sessions of one role, also of those that have ended.

    It asks the database nothing: PostgreSQL writes the role into the title of each session's process.
    """

    def __init__(self, postmaster: int, role: str) -> None:
        self._postmaster = postmaster
        self._title = f"postgres: {role} "
        self._known: dict[tuple[int, int], float] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def seconds(self) -> float:
        """Of all sessions so far."""
        self._sample()
        with self._lock:
            return sum(self._known.values())

    def _watch(self) -> None:
        while not self._stop.wait(EVERY):
            self._sample()

    def _sample(self) -> None:
        found = {}
        for pid in _children(self._postmaster):
            stat = _stat(pid)
            if stat is not None and self._is_ours(pid):
                found[pid, stat.started] = stat.own
        with self._lock:
            self._known.update(found)

    def _is_ours(self, pid: int) -> bool:
        title = _title(pid)
        for_session = _FOR_SESSION.search(title)
        return (_title(int(for_session[1])) if for_session else title).startswith(self._title)


def _children(pid: int) -> list[int]:
    return [int(each) for each in _read(f"/proc/{pid}/task/{pid}/children").split()]


def _title(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline")


def _stat(pid: int) -> _Stat | None:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not fields:
        return None
    user, system, reaped_user, reaped_system = (int(each) / TICK for each in fields[11:15])
    return _Stat(int(fields[1]), user + system, reaped_user + reaped_system, int(fields[19]))


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:  # the process has ended
        return ""
