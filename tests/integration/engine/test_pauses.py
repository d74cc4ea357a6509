"""A pause stops everything of its box: what is queued, held, signalled or due. Resuming lets it go on in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from threading import Event, Lock
from types import SimpleNamespace
from typing import Any

import pytest

from boxengine.app.assembly import ground
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.domain.item import Item
from boxengine.domain.job import Job
from boxengine.engine.delivering.holds.taking import Taking
from boxengine.engine.polling import pauses
from boxengine.engine.timing import TIMING
from boxengine.ports import Hold
from tests.integration.engine.receivers import BatchReceiver, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import ON_POSTGRESQL, MakeRig
from tests.integration.engine.watcher import PATIENCE

pytestmark = ON_POSTGRESQL
OTHER = "other_outbox_item"


class PatientLock:
    """Whoever finds it taken waits."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.release = self._lock.release

    def acquire(self, *, blocking: bool) -> bool:
        return self._lock.acquire()


@pytest.fixture(autouse=True)
def heard_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise a thread goes by the last answer as long as another one asks.
    monkeypatch.setattr(pauses, "threading", SimpleNamespace(Lock=PatientLock))
    monkeypatch.setattr(ground, "TIMING", replace(TIMING, pause_heard=0.0, pause_asked_again=0.0))


def say(rig: Rig, *, enabled: bool) -> None:
    connected = connect_servers(rig.boxes.resolved.settings)
    connected.pauses.set(rig.box(), polling_enabled=enabled)
    connected.close()


def jobs_of(rig: Rig) -> list[Job]:
    """One for each row."""
    return [Job(row.bucket, 1_700_000_000, (row.id,)) for row in rig.rows().values()]


class Gated(BatchReceiver):
    """Stops in its first call until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go = Event(), Event()

    def call_batch(self, items: Sequence[Item]) -> list[Any]:
        self.entered.set()
        assert self.go.wait(PATIENCE)
        return super().call_batch(items)


class GatedOneByOne(Receiver):
    """The same for single items."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go = Event(), Event()

    def __call__(self, item: Item, payload: Any) -> Any:
        self.entered.set()
        assert self.go.wait(PATIENCE)
        return super().__call__(item, payload)


@pytest.mark.parametrize("in_batches", [True, False], ids=["whole batches", "one by one"])
@pytest.mark.parametrize("wakeup", ["notify", "none"])
def test_of_a_paused_backlog_only_the_call_under_way_is_finished_and_resuming_goes_on_in_order(
    make_rig: MakeRig, wakeup: str, in_batches: bool
) -> None:
    boxes: dict[str, Any] = {BOX: {}, OTHER: {}}
    rig = make_rig(bucket_size=16, wakeup=wakeup, outbox_items=boxes)
    receiver: Gated | GatedOneByOne = Gated() if in_batches else GatedOneByOne()
    witness = Receiver()
    rig.carry(receiver)
    rig.carry(witness, box=OTHER)
    ids = rig.create(*(number % 40 for number in range(4_000)))
    with rig.worker(processor_threads=1) as watcher:
        assert receiver.entered.wait(PATIENCE)
        say(rig, enabled=False)
        ids += rig.create(*range(40))  # committed, and signalled, after the pause
        rig.create(1, box=OTHER)
        receiver.go.set()
        witness.wait_for(1)  # the only thread has left the paused box alone and gone on
        handed_over = len(receiver.items)
        rig.create(2, box=OTHER)
        rig.create(3, box=OTHER)
        witness.wait_for(3)
        assert len(receiver.items) == handed_over
        assert handed_over == (len(receiver.batches[0]) if isinstance(receiver, Gated) else 1)
        say(rig, enabled=True)
        watcher.wait_for_settled(len(ids) + 3)
    assert sorted(receiver.ids) == sorted(ids)
    assert all(found == sorted(found) for found in receiver.by_key.values())


def test_a_job_that_was_queued_before_waits_while_boxes_start_paused(make_rig: MakeRig) -> None:
    rig = make_rig(outbox_items={BOX: {}, OTHER: {}}, polling_auto_disabled=True)
    receiver, witness = Receiver(), Receiver()
    rig.carry(receiver)
    rig.carry(witness, box=OTHER)
    rig.create(1, 2, 3)
    connected = connect_servers(rig.boxes.resolved.settings)
    connected.queue.push(rig.box(), jobs_of(rig))
    connected.pauses.set(rig.box(OTHER), polling_enabled=True)
    rig.create(1, box=OTHER)
    with rig.worker() as watcher:
        witness.wait_for(1)
        assert connected.queue.state(rig.box()).length == len(jobs_of(rig))
        assert receiver.ids == []
        say(rig, enabled=True)
        watcher.wait_for_settled(4)
    connected.close()


def test_what_a_thread_has_taken_of_a_box_paused_meanwhile_goes_back_to_the_queue(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, receiver = make_rig(), Receiver()
    rig.carry(receiver)
    rig.create(1, 2, 3)
    connected = connect_servers(rig.boxes.resolved.settings)
    take, taken = Taking.take, Event()

    def pause_after_taking(self: Taking) -> tuple[Hold | None, timedelta]:
        hold, pause = take(self)  # from the queue, or past it
        if hold is not None and not taken.is_set():
            say(rig, enabled=False)
            taken.set()
        return hold, pause

    monkeypatch.setattr(Taking, "take", pause_after_taking)
    with rig.worker(processor_threads=1) as watcher:
        assert taken.wait(PATIENCE)
        watcher.wait_for(lambda: watcher.states != [])
        assert receiver.ids == []
        assert connected.queue.state(rig.box()).length > 0
        say(rig, enabled=True)
        watcher.wait_for_settled(3)
    connected.close()
