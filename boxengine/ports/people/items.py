"""What people do with items: which ones they mean, and what becomes of those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Which rows of a box a person means; what is left out does not restrict."""

    statuses: frozenset[int] = frozenset()
    ids: tuple[ItemId, ...] = ()
    event_key: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    up_to: ItemId | None = None
    """The highest id that is meant."""
    tried: bool = False
    """Of pending rows only those with failed attempts."""
    uuid: str | None = None
    """In its canonical form."""
    event_name: str | None = None
    error: str | None = None
    """Text that stands in the ``error_log``, in whatever case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRow:
    """One row as people look at it; of a column that the table lacks, None. Moments have zone UTC.

    What Python cannot hold (an infinite moment, options that are no JSON) is the text that the database has for it.
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
    """None in a page, where it would be much to carry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replay:
    header: str
    """Name of the header that carries the uuid of the delivered row."""
    same_identity: bool = False
    """Whether receivers are given the row's own ``Idempotency-Key``, so that those that know it drop what they get."""
    transport: str | None = None
    """The only one to deliver to; None: all that are for the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying(_Replay):
    """Delivered rows go out once more as copies, behind all rows of their keys."""

    event_name: str | None = None
    """None: that of the row."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Set in the copies' options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaking(_Replay):
    """Delivered rows go out once more themselves, in their old places before all live rows of their keys."""


Replay = Copying | Overtaking
"""How delivered rows go out once more."""


class ItemsStore(Protocol):
    """What people do with rows: look at them, and retry, discard or delete them. Never in the path of a delivery.

    Each change is one transaction over the ids given, at most some thousands. It waits for nobody: rows that a worker has
    locked stay as they are and are not among the ids returned, nor are rows that the filter does not mean (any more).
    What lets other rows go on (a retry; under strict order a discard or a deletion too) wakes the workers.
    Every method raises ``StoreUnavailable`` where the database does not answer.
    """

    def count(self, box: Box, which: ItemFilter) -> int:
        """How many rows are meant."""

    def last_id(self, box: Box) -> ItemId | None:
        """The highest id of the box's rows; None where there are none."""

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
        """As ``retry``, but as if never tried: no retry strategy is asked before the next attempt."""

    def discard(self, box: Box, which: ItemFilter, ids: Sequence[ItemId]) -> frozenset[ItemId]:
        """Makes pending and failed rows discarded; their ``error_log`` begins with the time and "discarded by hand"."""

    def delete(self, box: Box, which: ItemFilter, ids: Sequence[ItemId]) -> frozenset[ItemId]:
        """Deletes rows; pending ones only where the filter names that status."""

    def replay(self, box: Box, which: ItemFilter, ids: Sequence[ItemId], how: Replay) -> int:
        """Lets the rows that are meant go out once more; returns how many.

        ``Copying`` adds a pending copy of each row, in the order of their ids, in the same bucket. A copy has a uuid of its
        own and no ``dedup_key``. ``Overtaking`` makes the row itself pending, marked as its copy would be.

        Raises:
            BoxError: the table has nowhere to put the header.
        """
