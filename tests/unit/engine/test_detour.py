"""While one receiver is away, the items for other transports go on, however many wait for it; and nobody is overtaken."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from boxengine.adapters.memory.log.store import MemoryLogStore
from boxengine.domain.box import Backoff, CircuitPolicy, Storage, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.engine.answers import WITHHELD
from boxengine.engine.delivering.batches.delivery import Delivery
from boxengine.engine.delivering.receivers.detour import ANEW
from boxengine.errors import Unavailable
from tests.unit.engine.bench import Batches, Bench, Single, spec

ROWS = 8
"""Of a batch: two of each bucket."""
MANY = 60
"""Items that wait: enough to fill several batches of each bucket."""
PAUSE = timedelta(seconds=1)
STORAGES = [Storage.TABLE, Storage.LOG]
ORDERS = [StrictOrder.NONE, StrictOrder.KEY]
HOUR = 3600.0
"""Seconds for which a receiver asks to be left alone, so that nothing probes meanwhile."""


class Shop:
    """A box with two transports; the receiver of ``mail`` events is away."""

    def __init__(
        self,
        storage: Storage,
        order: StrictOrder,
        *,
        kind: Any = Batches,
        retry_after: float | None = None,
        **policy: Any,
    ) -> None:
        self.bench = Bench(
            storage=storage,
            strict_order=order,
            circuit_breaker=CircuitPolicy(failures=1, pause=PAUSE, longest_pause=PAUSE),
            **policy,
        )
        if storage is Storage.LOG:
            self.bench.store = MemoryLogStore(self.bench.clock)
        self.away, self._retry_after = True, retry_after
        self.refused: set[int] = set()
        """Items that the receiver of ``news`` refuses."""
        self.mail, self.news = kind(self._mail), kind(lambda item: item.id not in self.refused)
        self.delivery: Delivery = self.bench.delivery(
            spec(self.mail, name="mail", event_name="mail"), spec(self.news, name="news", event_name="news")
        )
        self.meet_the_outage()

    def _mail(self, item: Item) -> Unavailable | None:
        return Unavailable("nobody is there", retry_after=self._retry_after) if self.away else None

    def meet_the_outage(self) -> None:
        """Sends an item in vain, so that the circuit opens."""
        self.write("first", "mail")
        self.bench.run(self.delivery)
        assert [circuit.transport for circuit in self.delivery.open_circuits()] == ["mail"]

    def write(self, key: object, event_name: str, **columns: Any) -> int:
        (row_id,) = self.bench.insert(key, event_name=event_name, **columns)
        return row_id

    def drain(self, *, most: int = 200) -> None:
        """Batch after batch, as a drain does, until all is empty or a batch brings nothing on."""
        for _ in range(most):
            report = self.bench.run(self.delivery, rows=ROWS)
            if not report.progressed or report.exhausted == frozenset(self.bench.box.buckets):
                return
        raise AssertionError(f"still going on after {most} batches")

    def pending(self) -> int:
        boxes = self.bench.store.rows(self.bench.box)
        return sum(row.status == Status.PENDING for row in boxes)


@pytest.fixture(params=STORAGES, ids=str)
def storage(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=ORDERS, ids=str)
def order(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("kind", [Single, Batches])
def test_however_many_wait_for_one_receiver_the_others_get_theirs(
    storage: Storage, order: StrictOrder, kind: Any
) -> None:
    shop = Shop(storage, order, kind=kind)
    for number in range(MANY):
        shop.write(f"mail {number}", "mail")
    wanted = [shop.write(f"news {number}", "news") for number in range(MANY)]
    shop.drain()
    assert sorted(shop.news.ids) == wanted


def test_new_items_are_reached_at_once_and_not_by_way_of_those_that_wait(storage: Storage, order: StrictOrder) -> None:
    shop = Shop(storage, order)
    for number in range(MANY):
        shop.write(f"mail {number}", "mail")
    shop.drain()
    late = shop.write("late", "news")
    report = shop.bench.run(shop.delivery, rows=ROWS)
    assert shop.news.ids == [late]
    assert report.claimed == 1


@pytest.mark.parametrize("kind", [Single, Batches])
def test_an_item_does_not_overtake_one_of_its_key_that_waits_for_the_receiver(
    storage: Storage, order: StrictOrder, kind: Any
) -> None:
    shop = Shop(storage, order, kind=kind)
    keys = [f"order {number}" for number in range(MANY)]
    for key in keys:
        shop.write(key, "mail")
    shop.drain()
    behind = [shop.write(key, "news") for key in keys]
    free = shop.write("another", "news")
    shop.drain()
    assert shop.news.ids == [free]
    shop.away = False
    shop.bench.clock.advance(PAUSE)
    shop.drain()
    assert (sorted(shop.news.ids), len(set(shop.mail.ids))) == (sorted([*behind, free]), MANY + 1)
    assert shop.pending() == 0


def test_once_the_receiver_is_back_everything_goes_out_in_order(storage: Storage) -> None:
    shop = Shop(storage, StrictOrder.KEY)
    keys = [f"order {number}" for number in range(10)]
    written: dict[str, list[int]] = {key: [] for key in keys}
    for turn in range(12):
        for key in keys:
            written[key].append(shop.write(key, "mail" if turn % 3 == 0 else "news"))
        shop.drain()
    sent: list[tuple[str, int]] = []
    key_of = {row_id: key for key, ids in written.items() for row_id in ids}
    for transport in (shop.mail, shop.news):
        transport.answer = _noting(sent, key_of)
    shop.bench.clock.advance(PAUSE)
    shop.drain()
    for key in keys:
        assert [row_id for of, row_id in sent if of == key] == written[key]


def _noting(sent: list[tuple[str, int]], key_of: dict[int, str]) -> Callable[[Item], None]:
    def answer(item: Item) -> None:
        if item.id in key_of:
            sent.append((key_of[item.id], item.id))

    return answer


def test_an_item_does_not_overtake_one_that_came_due_again_in_front(storage: Storage) -> None:
    """Its retry is due while reading goes on behind it, and its followers are no longer held back by its pause."""
    pause = timedelta(seconds=5)
    backoff = Backoff(minimal=pause, maximal=pause)
    shop = Shop(storage, StrictOrder.KEY, retry_after=HOUR, max_retries=5, backoff=backoff)
    first = shop.write("paper", "news")
    shop.refused = {first}
    for number in range(MANY):
        shop.write(f"mail {number}", "mail")
    shop.drain()
    second = shop.write("paper", "news")
    shop.drain()
    assert shop.news.ids == [first]
    shop.refused.clear()
    shop.bench.clock.advance(pause)
    shop.drain()
    assert shop.news.ids == [first]
    shop.bench.clock.advance(timedelta(seconds=2 * ANEW))
    shop.drain()
    assert shop.news.ids == [first, first, second]


def test_rows_in_front_are_found_again_after_a_while(storage: Storage, order: StrictOrder) -> None:
    """Such as one that a transaction with a lower id has committed late."""
    shop = Shop(storage, order, retry_after=HOUR)
    for number in range(MANY):
        shop.write(f"mail {number}", "mail")
    shop.drain()
    assert shop.bench.run(shop.delivery, rows=ROWS).claimed == 0
    shop.bench.clock.advance(timedelta(seconds=2 * ANEW))
    assert shop.bench.run(shop.delivery, rows=ROWS).claimed == ROWS


def test_a_retried_item_for_which_the_time_did_not_suffice_is_not_passed(storage: Storage, order: StrictOrder) -> None:
    """Only what a strategy skips is, or what rests."""
    shop = Shop(storage, order, kind=Single, retry_after=HOUR)
    tried = {"errors_count": 1, "processed_at": shop.bench.clock.now() - timedelta(days=1), "bucket": 0}
    ids = [shop.write(f"news {number}", "news", **tried) for number in range(2)]
    shop.bench.run(shop.delivery, until=0.0)
    assert shop.news.ids == ids[:1]
    shop.drain()
    assert shop.news.ids == ids


def test_an_item_for_which_a_transport_had_no_time_is_sent_by_the_next_batch_and_not_passed(
    storage: Storage, order: StrictOrder
) -> None:
    shop = Shop(storage, order, retry_after=HOUR)
    for number in range(6):
        shop.write(f"news {number}", "news", bucket=0)
    news = shop.news
    news.answer = lambda item: None if item.id == news.calls[-1][0] else WITHHELD
    shop.drain()
    assert shop.pending() == 1


def test_items_that_were_passed_go_out_once_their_receiver_is_back_though_another_is_still_away(
    storage: Storage, order: StrictOrder
) -> None:
    shop = Shop(storage, order)
    fax = Batches(lambda _item: Unavailable("engaged", retry_after=PAUSE.total_seconds()))
    mail = Batches(lambda _item: Unavailable("closed for the day", retry_after=HOUR))
    shop.delivery = shop.bench.delivery(
        spec(mail, name="mail", event_name="mail"),
        spec(fax, name="fax", event_name="fax"),
        spec(shop.news, name="news", event_name="news"),
    )
    for number in range(MANY):
        shop.write(f"mail {number}", "mail")
    faxes = [shop.write(f"fax {number}", "fax") for number in range(MANY)]
    news = shop.write("news", "news")
    for _ in range(3):
        shop.drain()
    assert shop.news.ids == [news]
    fax.answer, fax.calls[:] = (lambda _item: None), []
    shop.bench.clock.advance(PAUSE)
    for _ in range(3):
        shop.drain()
    assert sorted(fax.ids) == faxes


def test_buckets_in_which_nothing_else_is_due_are_left_until_their_leases_run_out(
    storage: Storage, order: StrictOrder
) -> None:
    """Each look at the table finds the items that wait. Buckets that are free would be read without a pause."""
    shop = Shop(storage, order)
    shop.write("mail", "mail")
    shop.drain()
    report = shop.bench.run(shop.delivery, rows=ROWS)
    assert (report.claimed, report.progressed) == (0, False)
    assert report.positions.keys() == set(shop.bench.box.buckets) - report.exhausted


@pytest.mark.parametrize(("order", "goes_on"), [(StrictOrder.KEY, True), (StrictOrder.BUCKET, False)])
def test_a_drain_goes_on_after_a_probe_in_vain_if_there_is_a_way_round(order: StrictOrder, *, goes_on: bool) -> None:
    """Otherwise the leases of its buckets would have to run out before anybody looked at them again."""
    shop = Shop(Storage.TABLE, order)
    shop.bench.clock.advance(PAUSE)
    report = shop.bench.run(shop.delivery, rows=ROWS)
    assert (len(shop.mail.calls), report.progressed) == (2, goes_on)


def test_a_drain_ends_after_a_probe_in_vain_where_no_other_transport_is_left() -> None:
    shop = Shop(Storage.TABLE, StrictOrder.KEY)
    shop.delivery = shop.bench.delivery(spec(shop.mail, name="mail"))
    assert not shop.bench.run(shop.delivery, rows=ROWS).progressed
    shop.bench.clock.advance(PAUSE)
    report = shop.bench.run(shop.delivery, rows=ROWS)
    assert (len(shop.mail.calls), report.progressed) == (3, False)


def test_under_strict_order_by_bucket_everything_behind_waits() -> None:
    shop = Shop(Storage.TABLE, StrictOrder.BUCKET)
    for number in range(MANY):
        shop.write(f"mail {number}", "mail")
    shop.write("news", "news")
    shop.drain()
    assert shop.news.ids == []
