"""Wakes the workers when a transaction commits that makes a job or asks one to stop."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from boxengine.adapters.announcer import Send
from boxengine.adapters.sql.waking.after_commit import send_after_commit
from boxengine.adapters.sql.waking.eased_notify import EasedNotify
from boxengine.adapters.sql.waking.notifying import IN_TRANSACTION, wake
from boxengine.ports import Signal


class JobWakeup:
    """Wakes the workers of one box. A hint that is lost costs the time until a worker's next look."""

    def __init__(
        self,
        box_name: str,
        *,
        notify: bool = False,
        signal: Send | None = None,
        eased: EasedNotify | None = None,
        ring: Send | None = None,
        rings: Callable[[str], bool] = lambda _box_name: False,
    ) -> None:
        """Args:
        notify: by the database's own notification, if it has one.
        signal: called after the commit if it has none.
        eased: decides which transactions notify by themselves, and who does it for the others; None: all do.
        ring: wakes claimers of this process after the commit.
        rings: whether there are any for a box.
        """
        self._box_name = box_name
        self._new, self._request = [Signal(box_name, None)], [Signal(box_name, None, again=True)]
        self._notify = notify
        self._signal = signal
        self._eased = eased
        self._ring = ring
        self._rings = rings

    def tell(self, connection: Connection) -> None:
        """Has the workers woken after the commit, and not at all after a rollback: there are jobs to begin."""
        self._tell(connection, self._new)

    def tell_of_request(self, connection: Connection) -> None:
        """The same for workers that may have to stop a job."""
        self._tell(connection, self._request)

    def _tell(self, connection: Connection, signals: list[Signal]) -> None:
        if self._ring is not None and self._rings(self._box_name):
            send_after_commit(connection, signals, self._ring)
        if self._notify and connection.dialect.name == "postgresql":
            wake(connection, signals, IN_TRANSACTION if self._eased is None else self._eased.way(connection))
        elif self._signal is not None:
            send_after_commit(connection, signals, self._signal)
