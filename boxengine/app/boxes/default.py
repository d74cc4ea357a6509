"""The configuration that the module-level functions share: the package's only global."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from boxengine.app.boxes.boxes import Boxes
from boxengine.app.boxes.loading import load
from boxengine.domain.attributes import BatchAttributes, ItemAttributes, P
from boxengine.domain.job_attributes import JobAttributes, NewJobAttributes

if TYPE_CHECKING:
    from boxengine.adapters.sql.jobs.models import JobItem
    from boxengine.adapters.sql.shape.models import InboxItem, OutboxItem
    from boxengine.app.boxes.creating import AnyAsyncSession, AnySession


class _Default:
    """Read from the usual place at first use, or set with ``configure``."""

    def __init__(self) -> None:
        self._boxes: Boxes | None = None
        self._lock = threading.RLock()
        """May be taken again by the thread that has it: a module that it imports meanwhile may choose a configuration."""

    def get(self) -> Boxes:
        boxes = self._boxes
        if boxes is not None:
            return boxes  # without the lock, which a thread of the parent would have held at a fork
        with self._lock:
            return self._boxes or self.offer(load())

    def set(self, boxes: Boxes) -> None:
        with self._lock:
            self._boxes = boxes

    def offer(self, boxes: Boxes) -> Boxes:
        with self._lock:
            self._boxes = self._boxes or boxes
            return self._boxes

    def stand_in(self) -> Boxes | None:
        boxes = self._boxes
        return boxes if boxes is not None and boxes.stand_in else None

    def swap(self, boxes: Boxes | None) -> Boxes | None:
        """Replaces the configuration, or clears it with None, and returns the previous one."""
        with self._lock:
            before, self._boxes = self._boxes, boxes
            return before


_default = _Default()


def configure(boxes: Boxes | None = None, *, path: str | Path | None = None, env: str | None = None) -> Boxes:
    """Sets what the module-level functions use: a ``Boxes``, or a file to load one from.

    Raises:
        ConfigurationError: lists every problem that was found.
    """
    chosen = boxes if boxes is not None else load(path, env)
    _default.set(chosen)
    return chosen


def current() -> Boxes:
    """What the module-level functions use.

    Raises:
        ConfigurationError: nothing was set, and the configuration in the usual place is wrong.
    """
    return _default.get()


@contextmanager
def standing_in(boxes: Boxes) -> Iterator[None]:
    """Makes the module-level functions use these boxes inside the block, and the previous ones afterwards. For tests."""
    before = _default.swap(boxes)
    try:
        yield
    finally:
        _default.swap(before)


def stand_in() -> Boxes | None:
    """The boxes of the test that runs, if it has any: an application under test uses them in place of its own."""
    return _default.stand_in()


def offer(boxes: Boxes) -> None:
    """Sets what the module-level functions use unless the application has chosen: in a worker, the worker's own boxes.

    A transport that creates items then uses the same files, and the worker's metrics count those items.
    """
    _default.offer(boxes)


def create_outbox_item(
    session: AnySession,
    model: type[OutboxItem[P]] | str,
    *,
    partition_by: object = None,
    **attributes: Unpack[ItemAttributes[P]],
) -> int:
    """Writes an item into an outbox, through the caller's open transaction, and returns its id.

    Uses the default configuration: the one that ``configure`` has set, otherwise the file that ``boxengine`` finds by itself.
    ``Boxes.create_outbox_item`` describes the arguments and the errors.
    """
    return _default.get().create_outbox_item(session, model, partition_by=partition_by, **attributes)


def create_inbox_item(
    session: AnySession,
    model: type[InboxItem[P]] | str,
    *,
    partition_by: object = None,
    **attributes: Unpack[ItemAttributes[P]],
) -> int:
    """Writes a received message into an inbox as an item, and returns its id. Otherwise as ``create_outbox_item``."""
    return _default.get().create_inbox_item(session, model, partition_by=partition_by, **attributes)


def create_outbox_batch(
    session: AnySession,
    model: type[OutboxItem[P]] | str,
    items: Sequence[BatchAttributes[P]],
    *,
    partition_by: Callable[[dict[str, Any]], object] | None = None,
) -> list[int]:
    """Writes many items into an outbox with few statements, and returns their ids in the order of ``items``.

    Uses the default configuration, as ``create_outbox_item``. ``Boxes.create_outbox_batch`` describes the arguments and the
    errors.
    """
    return _default.get().create_outbox_batch(session, model, items, partition_by=partition_by)


def create_inbox_batch(
    session: AnySession,
    model: type[InboxItem[P]] | str,
    items: Sequence[BatchAttributes[P]],
    *,
    partition_by: Callable[[dict[str, Any]], object] | None = None,
) -> list[int]:
    """Writes many received messages into an inbox as items, and returns their ids. Otherwise as ``create_outbox_batch``."""
    return _default.get().create_inbox_batch(session, model, items, partition_by=partition_by)


async def acreate_outbox_item(
    session: AnyAsyncSession,
    model: type[OutboxItem[P]] | str,
    *,
    partition_by: object = None,
    **attributes: Unpack[ItemAttributes[P]],
) -> int:
    """``create_outbox_item`` under an ``AsyncSession``."""
    return await _default.get().acreate_outbox_item(session, model, partition_by=partition_by, **attributes)


async def acreate_inbox_item(
    session: AnyAsyncSession,
    model: type[InboxItem[P]] | str,
    *,
    partition_by: object = None,
    **attributes: Unpack[ItemAttributes[P]],
) -> int:
    """``create_inbox_item`` under an ``AsyncSession``."""
    return await _default.get().acreate_inbox_item(session, model, partition_by=partition_by, **attributes)


async def acreate_outbox_batch(
    session: AnyAsyncSession,
    model: type[OutboxItem[P]] | str,
    items: Sequence[BatchAttributes[P]],
    *,
    partition_by: Callable[[dict[str, Any]], object] | None = None,
) -> list[int]:
    """``create_outbox_batch`` under an ``AsyncSession``."""
    return await _default.get().acreate_outbox_batch(session, model, items, partition_by=partition_by)


async def acreate_inbox_batch(
    session: AnyAsyncSession,
    model: type[InboxItem[P]] | str,
    items: Sequence[BatchAttributes[P]],
    *,
    partition_by: Callable[[dict[str, Any]], object] | None = None,
) -> list[int]:
    """``create_inbox_batch`` under an ``AsyncSession``."""
    return await _default.get().acreate_inbox_batch(session, model, items, partition_by=partition_by)


def create_job(
    session: AnySession, model: type[JobItem] | str, *, task: str, **attributes: Unpack[JobAttributes]
) -> int:
    """Writes a long job into its box, through the caller's open transaction, and returns its id.

    Uses the default configuration, as ``create_outbox_item``. ``Boxes.create_job`` describes the arguments and the errors.
    """
    return _default.get().create_job(session, model, task=task, **attributes)


def create_jobs(session: AnySession, model: type[JobItem] | str, jobs: Sequence[NewJobAttributes]) -> list[int]:
    """Writes many long jobs into their box, and returns their ids in the order of ``jobs``. Otherwise as ``create_job``."""
    return _default.get().create_jobs(session, model, jobs)


async def acreate_job(
    session: AnyAsyncSession, model: type[JobItem] | str, *, task: str, **attributes: Unpack[JobAttributes]
) -> int:
    """``create_job`` under an ``AsyncSession``."""
    return await _default.get().acreate_job(session, model, task=task, **attributes)


async def acreate_jobs(
    session: AnyAsyncSession, model: type[JobItem] | str, jobs: Sequence[NewJobAttributes]
) -> list[int]:
    """``create_jobs`` under an ``AsyncSession``."""
    return await _default.get().acreate_jobs(session, model, jobs)
