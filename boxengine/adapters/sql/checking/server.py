"""What a checkup asks of a server, each kind in its own words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import timedelta

from sqlalchemy import Connection

from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.ports.people.checkup import Remark

AREA = "database"


class ServerChecks(ABC):
    """Over one connection. What a kind of server knows no trouble with, it has no remark on."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @abstractmethod
    def server(self) -> Iterable[Remark]:
        """The version, and settings that lose commits."""

    @abstractmethod
    def transactions(self, longer_than: timedelta) -> Iterable[Remark]:
        """Transactions that have been open for longer."""

    @abstractmethod
    def privileges(self, table: BoxTable) -> Iterable[Remark]:
        """What the account may not do with the table."""

    def commits(self, _longer_than: timedelta, /) -> Iterable[Remark]:
        """Commits that have waited for a standby for longer."""
        return ()

    def standbys(self, _more_than: int, /) -> Iterable[Remark]:
        """Queries on standbys that have held back vacuum for more transactions than this."""
        return ()

    def slots(self) -> Iterable[Remark]:
        """Slots that hold back vacuum."""
        return ()

    def autovacuum(self, _table: BoxTable, /) -> Iterable[Remark]:
        """Vacuums that are late."""
        return ()

    def bloat(self, _table: BoxTable, /) -> Iterable[Remark]:
        """Room that dead rows have left."""
        return ()

    def dead_rows(self, _table: BoxTable, /) -> Iterable[Remark]:
        """Many dead rows."""
        return ()

    def conversion(self, _table: BoxTable, /) -> Iterable[Remark]:
        """A conversion to a log, or back, that is under way."""
        return ()
