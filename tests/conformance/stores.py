"""How the conformance suite reaches each store: a box with an empty table, rows, and a second process's view."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.log.store import MemoryLogStore
from boxengine.adapters.memory.store import MemoryStore
from boxengine.domain.box import Box, BoxType, Storage
from boxengine.domain.item_id import ItemId
from boxengine.errors import StoreUnavailable
from boxengine.ports import HistoryStore, Store

MAX_BATCH_BYTES = 1_000_000
"""The limit of bytes in one batch, for every store's claims."""
TABLES = ("memory", "memory with text for ids", "postgresql", "mysql")
LOGS = ("memory log", "postgresql log")
INBOX_LOG = "postgresql inbox log"
NAMES = (*TABLES, *LOGS)
of_tables = pytest.mark.parametrize("harness", TABLES, indirect=True)
"""For behaviour that a log box refuses, does not have, or leaves to its side table, which is a table like any other."""


class FullStore(Store, HistoryStore, Protocol):
    """The ports that every store of boxengine implements."""


class Harness(ABC):
    """One store under test, and access to its rows as applications, operators and other workers have it."""

    store: FullStore
    """One process's handle."""
    other: FullStore
    """Another process's handle on the same rows."""
    storage: ClassVar[Storage] = Storage.TABLE
    box_type: ClassVar[BoxType] = BoxType.OUTBOX

    def __init__(self) -> None:
        self._boxes: list[Box] = []

    def make_box(self, **policy: Any) -> Box:
        """Makes a new box with an empty table; it has four buckets by default."""
        number = len(self._boxes) + 1
        box = Box(
            name=f"order_{number}_item",
            type=self.box_type,
            table=f"order_{number}_items",
            storage=self.storage,
            **{"bucket_size": 4, **policy},
        )
        self._boxes.append(box)
        self._box_added(box)
        return box

    @abstractmethod
    def now(self) -> datetime:
        """The store's clock, with zone UTC."""

    def ago(self, **span: float) -> datetime:
        """A moment in the past, by the store's clock."""
        return self.now() - timedelta(**span)

    @abstractmethod
    def insert(self, box: Box, *, event_key: object = "k", bucket: int = 0, **columns: Any) -> ItemId:
        """Commits a pending row and returns its id."""

    @abstractmethod
    def rows(self, box: Box) -> list[Mapping[str, Any]]:
        """The committed rows in id order; moments with zone UTC."""

    def row(self, box: Box, row_id: ItemId) -> Mapping[str, Any] | None:
        """One committed row."""
        return next((row for row in self.rows(box) if row["id"] == row_id), None)

    @abstractmethod
    def set_row(self, box: Box, row_id: ItemId, **columns: Any) -> None:
        """Changes a row as an operator with a console would."""

    @abstractmethod
    def refuse(self, box: Box, row_id: ItemId, *, even_failed: bool = False) -> None:
        """Makes the row refuse every outcome from now on, or every one except a failure."""

    @abstractmethod
    def add_effect(self, session: Any, text: str) -> None:
        """Writes a business row through a claim's session."""

    @abstractmethod
    def effects(self) -> list[str]:
        """The committed business rows."""

    @abstractmethod
    def break_open_claims(self) -> None:
        """Breaks the connection of every open claim."""

    @abstractmethod
    def close(self) -> None:
        """Frees connections."""

    @abstractmethod
    def _box_added(self, box: Box) -> None: ...

    def statuses(self, box: Box, *ids: ItemId) -> list[int | None]:
        """The status of each row; None for a row that does not exist."""
        status_of = {row["id"]: row["status"] for row in self.rows(box)}
        return [status_of.get(row_id) for row_id in ids]


class MemoryHarness(Harness):
    """The harness of ``MemoryStore``."""

    kind: ClassVar[type[MemoryStore]] = MemoryStore

    def __init__(self, *, name: Callable[[int], ItemId] = int) -> None:
        super().__init__()
        self._broken = False
        self._clock = ManualClock()
        self._memory = self.kind(self._clock, fault=self._fault, max_batch_bytes=MAX_BATCH_BYTES, name=name)
        self.store = self._memory
        self.other = self._memory.twin()

    def _fault(self, step: str) -> None:
        if self._broken and step == "commit":
            raise StoreUnavailable("the connection is gone")

    def now(self) -> datetime:
        return self._clock.now()

    def insert(self, box: Box, *, event_key: object = "k", bucket: int = 0, **columns: Any) -> ItemId:
        return self._memory.insert(box, event_key=event_key, bucket=bucket, **columns)

    def rows(self, box: Box) -> list[Mapping[str, Any]]:
        return [asdict(row) for row in self._memory.rows(box)]

    def set_row(self, box: Box, row_id: ItemId, **columns: Any) -> None:
        self._memory.update(box, row_id, **columns)

    def refuse(self, box: Box, row_id: ItemId, *, even_failed: bool = False) -> None:
        self._memory.refuse(box, row_id, even_failed=even_failed)

    def add_effect(self, session: Any, text: str) -> None:
        session.add(text)

    def effects(self) -> list[str]:
        return self._memory.effects

    def break_open_claims(self) -> None:
        self._broken = True

    def close(self) -> None:
        """Does nothing: nothing is open."""

    def _box_added(self, box: Box) -> None:
        """Does nothing: the first row creates the table."""


class MemoryLogHarness(MemoryHarness):
    """The harness of ``MemoryLogStore``."""

    storage = Storage.LOG
    kind = MemoryLogStore


@contextmanager
def open_harness(name: str, request: pytest.FixtureRequest) -> Iterator[Harness]:
    """The harness of that name. Its server comes from the fixture, so a test without it is skipped or fails as usual."""
    harness: Harness
    match name:
        case "memory":
            harness = MemoryHarness()
        case "memory with text for ids":
            harness = MemoryHarness(name="row-{:09}".format)
        case "memory log":
            harness = MemoryLogHarness()
        case "postgresql":
            from tests.conformance import sql_stores  # it builds on this module

            harness = sql_stores.postgresql(request.getfixturevalue("postgres_url"))
        case "postgresql log" | "postgresql inbox log":
            from tests.conformance import log_stores  # it builds on this module

            kind = log_stores.SqlInboxLogHarness if name == INBOX_LOG else log_stores.SqlLogHarness
            harness = kind(request.getfixturevalue("postgres_url"))
        case "mysql":
            from tests.conformance import sql_stores  # it builds on this module

            harness = sql_stores.mysql(request.getfixturevalue("mysql_url"))
        case _:
            raise ValueError(name)
    try:
        yield harness
    finally:
        harness.close()
