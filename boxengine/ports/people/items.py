"""What people do with items: how they select them, and what they can change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId

PASSED = -1
"""The ``status`` of a row that stands in a log alone and that its position has passed: delivered, skipped, or failed and removed.

The log keeps no outcome of single rows, so this is none of the statuses that a table stores.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Selects rows of a box. A field that is left out does not restrict the selection."""

    statuses: frozenset[int] = frozenset()
    ids: tuple[ItemId, ...] = ()
    event_key: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    above: ItemId | None = None
    """The highest id that does not match."""
    up_to: ItemId | None = None
    """The highest id that matches."""
    tried: bool = False
    """Leaves out pending rows without failed attempts."""
    uuid: str | None = None
    """In its canonical form."""
    event_name: str | None = None
    error: str | None = None
    """Text that the ``error_log`` contains, in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRow:
    """One row as people see it. A column that the table lacks is None. Moments have zone UTC.

    A value that Python cannot represent (an infinite moment, options that are not JSON) is the database's text for it.
    """

    id: ItemId
    uuid: str
    event_name: str | None
    event_key: str
    bucket: int
    status: int
    errors_count: int
    created_at: datetime | str
    processed_at: datetime | str | None
    available_at: datetime | str | None
    dedup_key: str | None
    options: Mapping[str, Any] | str | None
    error_log: str | None
    payload: bytes | None
    """None in a page, which would become too large."""


def status_name(status: int) -> str:
    """The status's name, such as ``pending``; ``passed`` for ``PASSED``; an unknown number is returned as text."""
    if status == PASSED:
        return "passed"
    return Status(status).name.lower() if status in set(Status) else str(status)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replay:
    same_identity: bool = False
    """Whether receivers get the row's own ``Idempotency-Key``, so that those that know it drop the repetition."""
    transport: str | None = None
    """The only transport to deliver to; None: all that take the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying(_Replay):
    """Delivered rows go out again as copies, behind all rows of their keys."""

    event_name: str | None = None
    """None: the row's own."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Set in the copies' options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaking(_Replay):
    """Delivered rows themselves go out again, in their old places, before all live rows of their keys."""


Replay = Copying | Overtaking
"""How delivered rows go out again."""


class ItemsStore(Protocol):
    """What people do with rows: look at them, and retry, discard or delete them. Never in the path of a delivery.

    Each change is one transaction over the given ids, at most a few thousand. It waits for nobody: rows that a worker has
    locked stay as they are and are not among the returned ids, nor are rows that do not match the filter (any more).
    A change that lets rows proceed (a retry; under strict order also a discard or a deletion) wakes the workers.
    A row that becomes due again in a bucket that the box no longer has moves to the bucket of its key.
    Every method raises ``StoreUnavailable`` if the database does not answer.
    """

    def count(self, box: Box, which: ItemFilter) -> int:
        """How many rows match."""

    def last_id(self, box: Box) -> ItemId | None:
        """The highest id of the box's rows; None if there are none."""

    def ids(self, box: Box, which: ItemFilter, *, after: ItemId | None, limit: int) -> list[ItemId]:
        """The next ids, in order, that are greater than ``after``."""

    def page(self, box: Box, which: ItemFilter, *, after: ItemId | None, limit: int) -> list[ItemRow]:
        """The next rows by id, without their payloads."""

    def get(self, box: Box, item_id: ItemId) -> ItemRow | None:
        """One row with its payload."""

    def retry(self, box: Box, which: ItemFilter, ids: Sequence[ItemId]) -> frozenset[ItemId]:
        """Makes failed, discarded and waiting rows due at once, with no failed attempts.

        They still count as tried (``processed_at``), so the retry strategies are asked; their ``error_log`` stays.
        """

    def restart(self, box: Box, which: ItemFilter, ids: Sequence[ItemId]) -> frozenset[ItemId]:
        """Like ``retry``, but as if the rows had never been tried: no retry strategy is asked before the next attempt."""

    def discard(self, box: Box, which: ItemFilter, ids: Sequence[ItemId]) -> frozenset[ItemId]:
        """Marks pending and failed rows as discarded; their ``error_log`` begins with the time and "discarded by hand"."""

    def delete(self, box: Box, which: ItemFilter, ids: Sequence[ItemId]) -> frozenset[ItemId]:
        """Deletes rows; pending ones only if the filter names that status."""

    def replay(self, box: Box, which: ItemFilter, ids: Sequence[ItemId], how: Replay) -> int:
        """Makes the matching rows go out again; returns how many.

        ``Copying`` adds a pending copy of each row, in the order of their ids, in the same bucket. A copy has a uuid of its
        own and no ``dedup_key``. ``Overtaking`` makes the row itself pending, marked as its copy would be.

        Raises:
            BoxError: the table has no column for the header.
        """
