"""Random histories of transactions and claims, held against what the log promises."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.domain.box import Backoff, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from tests.integration.log.bench import Bench

STEPS = 250
WRITERS = 6
KEYS = "abc"
PAUSE = Backoff(minimal=timedelta(hours=1))


class History:
    """Writers with open transactions, and claims in between; remembers what was committed before what was written."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.chance = random.Random(seed)
        self.open: dict[sa.Connection, list[int]] = {}
        self.committed: set[int] = set()
        self.key_of: dict[int, str] = {}
        self.before: dict[int, frozenset[int]] = {}
        """By item, those that had been committed when it was written."""
        self.sent: list[int] = []
        self.delivered: list[int] = []
        self.stack = ExitStack()

    def step(self) -> None:
        chance = self.chance.random()
        if chance < 0.15 and len(self.open) < WRITERS:
            connection = self.stack.enter_context(self.bench.engine.connect())
            connection.begin()
            self.open[connection] = []
            if self.chance.random() < 0.5:
                connection.execute(sa.text("SELECT pg_current_xact_id()"))  # numbered long before it writes an item
        elif chance < 0.55 and self.open:
            self.write(self.chance.choice(list(self.open)))
        elif chance < 0.75 and self.open:
            self.end(self.chance.choice(list(self.open)))
        elif chance < 0.8:
            self.let_time_pass()
        else:
            self.claim()

    def let_time_pass(self) -> None:
        """Pauses end, and somebody retries what has failed."""
        self.bench.ask("UPDATE order_items SET status = 0, processed_at = NULL WHERE status < 2 RETURNING 1")

    def write(self, connection: sa.Connection) -> None:
        key = self.chance.choice(KEYS)
        savepoint = connection.begin_nested() if self.chance.random() < 0.3 else None
        item = self.bench.put(connection, key, bucket=ord(key) % 2)
        if savepoint is not None and self.chance.random() < 0.5:
            savepoint.rollback()
            return
        if savepoint is not None:
            savepoint.commit()
        self.key_of[item], self.before[item] = key, frozenset(self.committed)
        self.open[connection].append(item)

    def end(self, connection: sa.Connection, *, commit: bool | None = None) -> None:
        items = self.open.pop(connection)
        if self.chance.random() < 0.8 if commit is None else commit:
            connection.commit()
            self.committed.update(items)
        else:
            connection.rollback()
        connection.close()

    def claim(self, *, quietly: bool = False) -> int:
        bench, chance = self.bench, self.chance
        wanted = dict.fromkeys(chance.choice([(0,), (1,), (0, 1)]) if not quietly else (0, 1), 0)
        with bench.store.plain_claims(bench.box).open(wanted, chance.choice([1, 2, 3, 5, 50])) as claim:
            settlement = self.outcomes(claim.items, quietly=quietly)
            undone = not quietly and chance.random() < 0.1
            if claim.items and not undone:
                assert claim.commit(settlement) is None
                self.delivered += settlement.delivered
            return len(claim.items)

    def outcomes(self, items: Any, *, quietly: bool) -> Settlement:
        """As the engine would: what follows a failed item of its key waits, under strict order by key."""
        settlement, held = Settlement(), set[str]()
        strict = self.bench.box.strict_order
        end = len(items) if quietly or self.chance.random() < 0.7 else self.chance.randrange(len(items) + 1)
        for item in items[:end]:
            key = item.event_key if strict is StrictOrder.KEY else item.bucket
            if strict is not StrictOrder.NONE and key in held:
                continue
            if not quietly and self.chance.random() < 0.1:
                status = Status.PENDING if strict is StrictOrder.BUCKET else self.chance.choice([0, 1])
                settlement.failed.append(FailedAttempt(item.id, Status(status), item.errors_count + 1, "broken"))
                held.add(key)
            else:
                settlement.delivered.append(item.id)
        return settlement

    def finish(self) -> None:
        for connection in list(self.open):
            self.end(connection, commit=True)
        for _ in range(500):
            self.let_time_pass()
            if not self.claim(quietly=True) and not self.claim(quietly=True):
                break


@pytest.fixture(params=list(StrictOrder))
def bench(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(postgres_url, strict_order=request.param, backoff=PAUSE, max_retries=None)
    yield bench
    bench.engine.dispose()


@pytest.mark.parametrize("seed", range(2))
def test_each_committed_item_goes_out_once_and_none_before_what_was_committed_before_it(
    bench: Bench, seed: int
) -> None:
    history = History(bench, seed)
    with history.stack:
        for _ in range(STEPS):
            history.step()
        history.finish()
    assert sorted(history.delivered) == sorted(history.committed)
    if bench.box.strict_order is StrictOrder.NONE:
        return
    place = {item: number for number, item in enumerate(history.delivered)}
    by_key: dict[str, list[int]] = defaultdict(list)
    for item in history.delivered:
        by_key[history.key_of[item]].append(item)
    for items in by_key.values():
        for item in items:
            behind = [each for each in items if each in history.before[item] and place[each] > place[item]]
            assert not behind
