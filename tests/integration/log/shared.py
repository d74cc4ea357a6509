"""One log with two subscriptions over an empty database, one claim at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Beginning, Box, StrictOrder, Subscription
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
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


@contextmanager
def shared_log(url: str, **policy: object) -> Iterator[SharedLog]:
    """A shared log whose connections are closed in the end."""
    log = SharedLog(url, **policy)  # type: ignore[arg-type]
    try:
        yield log
    finally:
        log.engine.dispose()


KEYED = {"strict_order": StrictOrder.KEY, "max_retries": None}
