"""One log with two subscriptions over an empty database, one claim at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from boxengine.adapters.sql.log import moving
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Beginning, Box, StrictOrder, Subscription
from boxengine.domain.item import Status
from boxengine.domain.log_progress import Position
from boxengine.domain.outcome import FailedAttempt, Settlement
from tests.eventually import eventually
from tests.integration.log.bench import Bench

NAMES = ("billing", "search")


def reader_of(log: Box, name: str, **policy: object) -> Box:
    """The box of one subscription, as the configuration makes it."""
    begins = policy.pop("begins", Beginning.OLDEST)
    subscription = Subscription(of=log, name=name, begins=begins)  # type: ignore[arg-type]
    own = {"name": f"{log.name}.{name}", "table": f"{log.table}_{name}", "subscription": subscription}
    return replace(log, **own, **policy)  # type: ignore[arg-type]


class SharedLog(Bench):
    """A log box with the subscriptions ``billing`` and ``search``."""

    def __init__(self, url: str, names: tuple[str, ...] = NAMES, **policy: object) -> None:
        super().__init__(url, subscriptions=names, **policy)
        self.readers = {name: reader_of(self.box, name) for name in names}
        schema.create(self.engine, list(self.readers.values()))

    def read(
        self,
        name: str,
        *,
        limit: int = 100,
        buckets: tuple[int, ...] = (0,),
        send: int = 100,
        fail: tuple[int, ...] = (),
    ) -> list[int]:
        """One claim of a subscription, of which so many items are sent; returns their ids."""
        with self.store.plain_claims(self.readers[name]).open(dict.fromkeys(buckets), limit) as claim:
            ids = [int(item.id) for item in claim.items][:send]
            failed = [FailedAttempt(each, Status.PENDING, 1, "broken") for each in ids if each in fail]
            if ids:
                delivered = [each for each in ids if each not in fail]
                assert claim.commit(Settlement(delivered=delivered, failed=failed)) is None
        return ids

    def aside(self, name: str) -> list[tuple[object, ...]]:
        """A subscription's side table."""
        return self.ask(f"SELECT id, status, errors_count FROM order_items_{name} ORDER BY id")

    def in_log(self) -> list[object]:
        return [row[0] for row in self.ask("SELECT id FROM order_items_log ORDER BY id")]


def send_back_during(log: SharedLog, item: int, remove: Callable[[], object]) -> None:
    """Sends ``billing`` back to this item. Before that is committed, something begins to remove rows."""
    write, removing = moving._Move._write, threading.Thread(target=remove)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    def write_and_begin(move: moving._Move, position: Position) -> None:
        write(move, position)
        if removing.ident is None:
            removing.start()
            eventually(lambda: not removing.is_alive() or log.ask(waits) == [(1,)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving._Move, "_write", write_and_begin)
        moving.Mover(log.engine, log.readers["billing"]).back(moving.Target(item=item))
    removing.join()


@contextmanager
def shared_log(url: str, **policy: object) -> Iterator[SharedLog]:
    """A shared log whose connections are closed in the end."""
    log = SharedLog(url, **policy)  # type: ignore[arg-type]
    try:
        yield log
    finally:
        log.engine.dispose()


KEYED = {"strict_order": StrictOrder.KEY, "max_retries": None}
