"""Buckets whose holders died: one item at a time, and the one that was alone in hand at three deaths fails with a reason."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from boxengine.adapters.memory.in_hand import MemoryInHand
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.job import Job
from boxengine.engine.delivering.care import Care
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.engine.delivering.holds.processor import ProcessLimits, Processor
from boxengine.engine.delivering.work import NO_CAUTION, Errand
from boxengine.engine.observation import NullObserver
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from boxengine.errors import Abandoned, QueueUnavailable, StoreUnavailable
from tests.unit.engine.bench import Batches, Bench, Until, spec, usual


class Deadly(Batches):
    """Ends the process at one item."""

    def __init__(self, deadly: int) -> None:
        super().__init__(self._end)
        self._deadly = deadly
        self.notes: Notes | None = None
        """Of the worker that is at work."""

    def _end(self, item: Item) -> None:
        if item.id == self._deadly:
            if self.notes is not None:
                self.notes.died = True
            raise Abandoned


def deliver_one(bench: Bench, transport: Any, in_hand: Any) -> None:
    """As a worker does it in a bucket whose holder died."""
    delivery = bench.delivery(spec(transport))
    with Care(in_hand).one() as caution:
        delivery.run(Errand(positions={0: None}, rows=1, until=1e9, term=Until(), caution=caution))


class Notes(MemoryInHand):
    """What is noted stays when the worker dies: nothing runs after that."""

    def take_out(self, box: Any, item: str) -> None:
        if not self.died:
            super().take_out(box, item)

    died = False


TTL = timedelta(seconds=4)


class Installation:
    """Workers that come one after the other, each with the queue and the notes that the last one left behind."""

    def __init__(self, **bench: Any) -> None:
        self.bench = Bench(bucket_size=2, max_retries=5, **bench)
        self.notes: dict[Any, tuple[int, str]] = {}
        self._queue = MemoryJobQueue(clock=self.bench.clock)
        self._workers = 0

    def work(self, transport: Batches, *, dies: bool) -> None:
        """One turn of a new worker, after the leases of the last one have run out."""
        bench, self._workers = self.bench, self._workers + 1
        in_hand = Notes(self.notes, worker=f"worker {self._workers}")
        if isinstance(transport, Deadly):
            transport.notes = in_hand
        processor = Processor(
            {bench.box.name: bench.delivery(spec(transport))},
            queue=self._queue,
            keeper=LeaseKeeper(self._queue, clock=bench.clock, length=usual(TTL), longest=timedelta(minutes=3)),
            care=Care(in_hand),
            schedule=Schedule([bench.box], partitions=1, clock=bench.clock),
            pauses=PauseWatch(MemoryPauses(), [bench.box], clock=bench.clock),
            outages=Outages(observer=NullObserver(), error_tracker=lambda *_, **__: None, clock=bench.clock),
            observer=NullObserver(),
            clock=bench.clock,
            limits=ProcessLimits(threads=1, wait=timedelta(0)),
        )
        bench.clock.advance(2 * TTL)
        self._queue.push(bench.box, [Job(bucket, 0, (1,)) for bucket in bench.box.buckets])
        if dies:
            with pytest.raises(Abandoned):
                processor.turn()
        else:
            processor.turn()


def test_after_one_death_each_bucket_goes_on_with_a_whole_batch() -> None:
    installation = Installation()
    bench = installation.bench
    ids = bench.insert(*range(20))
    installation.work(Deadly(ids[0]), dies=True)
    transport = Batches()
    installation.work(transport, dies=False)
    assert sorted(len(call) for call in transport.calls) == sorted(
        sum(bench.row(each).bucket == bucket for each in ids) for bucket in bench.box.buckets
    )
    assert installation.notes == {}


def test_a_database_that_is_away_in_a_careful_batch_is_no_death() -> None:
    away = False

    def fault(_step: str) -> None:
        if away:
            raise StoreUnavailable("it is away")

    installation = Installation(fault=fault)
    ids = installation.bench.insert(*range(20))
    installation.work(Deadly(ids[0]), dies=True)
    away = True
    installation.work(Batches(), dies=False)
    assert installation.notes == {}
    away = False
    transport = Batches()
    installation.work(transport, dies=False)
    assert max(map(len, transport.calls)) > 1, "no item goes alone"


def test_an_item_that_ends_every_worker_fails_after_five_deaths_and_all_others_are_delivered() -> None:
    installation = Installation()
    bench = installation.bench
    ids = bench.insert(*range(20))
    transport = Deadly(ids[5])
    for _ in range(5):
        installation.work(transport, dies=True)
    installation.work(transport, dies=False)
    assert [each for each in ids if bench.row(each).status != Status.DELIVERED] == [ids[5]]
    assert bench.row(ids[5]).status == Status.FAILED
    assert [len(call) == 1 for call in transport.calls if ids[5] in call] == [False, False, True, True, True]
    assert installation.notes == {}


@pytest.mark.parametrize("strict", list(StrictOrder))
def test_an_item_that_three_workers_did_not_survive_fails_with_a_reason(strict: StrictOrder) -> None:
    bench = Bench(bucket_size=1, max_retries=5, strict_order=strict)
    bad, good = bench.insert("a", "b")
    notes: dict[Any, tuple[int, str]] = {}
    transport = Deadly(bad)
    for worker in ("first", "second", "third"):
        dying = Notes(notes, worker=worker)
        dying.died = True
        with pytest.raises(Abandoned):
            deliver_one(bench, transport, dying)
        assert bench.row(bad).status == Status.PENDING
    deliver_one(bench, transport, MemoryInHand(notes, worker="fourth"))
    assert transport.calls == [[bad], [bad], [bad]]
    assert bench.row(bad).status == (Status.PENDING if strict is StrictOrder.BUCKET else Status.FAILED)
    assert bench.row(bad).errors_count == 1
    assert "worker: the worker ended while sending this item" in bench.row(bad).error_log
    assert notes == {}
    if strict is not StrictOrder.BUCKET:
        deliver_one(bench, transport, MemoryInHand(notes, worker="second"))
        assert bench.row(good).status == Status.DELIVERED


def test_one_item_at_a_time_goes_out_and_what_its_worker_survived_is_forgotten() -> None:
    bench, transport = Bench(bucket_size=1), Batches()
    ids = bench.insert(1, 2, 3)
    notes: dict[Any, tuple[int, str]] = {}
    for _ in ids:
        deliver_one(bench, transport, MemoryInHand(notes, worker="a"))
    assert transport.calls == [[each] for each in ids]
    assert notes == {}


@pytest.mark.parametrize("deaths", [1, 2])
def test_one_death_accuses_nobody_and_neither_do_two(deaths: int) -> None:
    bench, transport = Bench(bucket_size=1), Batches()
    (row_id,) = bench.insert(1)
    notes: dict[Any, tuple[int, str]] = {(bench.box.name, f"{row_id}:{bench.row(row_id).uuid}"): (deaths - 1, "killed")}
    deliver_one(bench, transport, MemoryInHand(notes, worker="b"))
    assert bench.row(row_id).status == Status.DELIVERED
    assert notes == {}


def test_what_this_very_worker_noted_accuses_nobody() -> None:
    bench, transport = Bench(bucket_size=1), Batches()
    (row_id,) = bench.insert(1)
    item = f"{row_id}:{bench.row(row_id).uuid}"
    notes: dict[Any, tuple[int, str]] = {(bench.box.name, item): (2, "a")}
    deliver_one(bench, transport, MemoryInHand(notes, worker="a"))
    assert bench.row(row_id).status == Status.DELIVERED


def test_an_item_that_cannot_be_noted_is_not_sent() -> None:
    class Gone:
        def put(self, *_arguments: Any) -> None:
            raise QueueUnavailable("Redis is gone")

        take_out = put

    bench, transport = Bench(bucket_size=1), Batches()
    (row_id,) = bench.insert(1)
    with pytest.raises(QueueUnavailable):
        deliver_one(bench, transport, Gone())
    assert transport.calls == []
    assert bench.row(row_id).status == Status.PENDING


def test_a_note_whose_answer_was_lost_is_removed_and_accuses_nobody() -> None:
    class AnswerLost(MemoryInHand):
        def put(self, box: Any, item: str) -> int:
            super().put(box, item)
            raise QueueUnavailable("answer lost")

    bench, notes = Bench(bucket_size=1), dict[Any, tuple[int, str]]()
    bench.insert(1)
    with pytest.raises(QueueUnavailable):
        deliver_one(bench, Batches(), AnswerLost(notes, worker="a"))
    assert notes == {}


def test_a_thread_that_cannot_be_alone_notes_nothing_and_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxengine.engine.delivering.care.ALONE_WITHIN", timedelta(0).total_seconds())
    care = Care(MemoryInHand({}, worker="a"))
    with care.one() as first, care.one() as second:
        assert first is not NO_CAUTION
        assert second is NO_CAUTION
