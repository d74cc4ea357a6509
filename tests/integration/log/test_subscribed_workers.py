"""Subscriptions with real workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from boxengine.adapters.sql.log.moving import Mover, Target
from tests.cli.project import Project
from tests.eventually import eventually
from tests.integration.engine.receivers import BatchReceiver, Gate
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import MakeRig, rigs
from tests.integration.engine.test_order import Broken
from tests.integration.engine.watcher import PATIENCE

BILLING, SEARCH = f"{BOX}.billing", f"{BOX}.search"
SHARED = {
    "storage": "log",
    "minimal_retry_interval": 0.05,
    "maximal_retry_interval": 0.1,
    "max_retries": 1000,
    "subscriptions": {
        "billing": {"strict_order": "key", "transports": {"log": {}}},
        "search": {"transports": {"log": {}}},
    },
}


@pytest.fixture
def make_rig(tmp_path: Path, postgres_url: str, redis_url: str) -> Iterator[MakeRig]:
    with rigs(tmp_path, database=postgres_url, redis=redis_url) as make:
        yield make


def create(rig: Rig, *keys: object) -> list[int]:
    with rig.engine.begin() as connection:
        return rig.boxes.create_outbox_batch(
            connection, BOX, [{"event_key": str(key), "payload": b"{}"} for key in keys]
        )


def in_order(receiver: BatchReceiver) -> bool:
    return all(first < second for ids in receiver.by_key.values() for first, second in pairwise(ids))


def test_a_commit_wakes_every_subscription(make_rig: MakeRig) -> None:
    rig = make_rig(box=SHARED, wakeup="notify")
    billing, search = BatchReceiver(), BatchReceiver()
    rig.carry(billing, box=BILLING)
    rig.carry(search, box=SEARCH)
    with rig.worker() as watcher:
        ids = create(rig, *range(20))
        watcher.wait_for_settled(40)
    assert sorted(billing.ids) == sorted(search.ids) == ids


def test_a_receiver_that_fails_holds_no_other_subscription(make_rig: MakeRig) -> None:
    rig = make_rig(box=SHARED)
    broken = Broken("1")
    billing, search = BatchReceiver(broken), BatchReceiver()
    rig.carry(billing, box=BILLING)
    rig.carry(search, box=SEARCH)
    ids = create(rig, 1, 2, 1)
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.failures) >= 2 and len(watcher.delivered) == 4)
        assert sorted(search.ids) == ids
        assert set(rig.rows(SEARCH)) == set()
        broken.keys.clear()
        watcher.wait_for(lambda: len(watcher.delivered) == 6)
    assert watcher.delivered[-2:] == [ids[0], ids[2]]


def test_one_that_no_worker_delivers_catches_up_in_order(make_rig: MakeRig) -> None:
    rig = make_rig(box=SHARED)
    billing, search = BatchReceiver(), BatchReceiver()
    rig.carry(billing, box=BILLING)
    rig.carry(search, box=SEARCH)
    number = 10_000
    for start in range(0, number, 2_000):
        create(rig, *(key % 50 for key in range(start, start + 2_000)))
    with rig.worker(boxes=[SEARCH]) as watcher:
        watcher.wait_for_settled(number)
    assert billing.ids == []
    with rig.worker(boxes=[BILLING]) as watcher:
        watcher.wait_for_settled(number)
    assert len(billing.ids) == len(set(billing.ids)) == number
    assert in_order(billing)
    assert in_order(search)


def test_one_that_is_sent_back_while_workers_run_delivers_again_in_order(make_rig: MakeRig) -> None:
    rig = make_rig(box=SHARED, wakeup="notify")
    billing, search = BatchReceiver(), BatchReceiver()
    rig.carry(billing, box=BILLING)
    rig.carry(search, box=SEARCH)
    with rig.worker() as watcher:
        ids = create(rig, *(key % 5 for key in range(40)))
        watcher.wait_for_settled(80)
        Mover(rig.engine, rig.box(SEARCH)).back(Target(item=ids[10]))
        watcher.wait_for_settled(110)
    assert sorted(search.ids[40:]) == ids[10:]
    again = BatchReceiver()
    again.items = search.items[40:]
    assert in_order(again)
    assert sorted(billing.ids) == ids


def test_claims_of_both_that_lose_their_connections_lose_and_turn_around_nothing(make_rig: MakeRig) -> None:
    rig = make_rig(box={**SHARED, "strict_order": "key"}, bucket_size=4)
    gate, search = Gate(), BatchReceiver()
    rig.carry(gate, box=BILLING)
    rig.carry(search, box=SEARCH)
    ids = create(rig, *(key % 7 for key in range(60)))
    with rig.worker() as watcher:
        assert gate.entered.wait(PATIENCE)
        rig.cut_connections(of_claims=True)
        gate.open()
        watcher.wait_for(lambda: len(watcher.delivered) == 120)
    assert sorted(watcher.delivered) == sorted(ids * 2)


def test_a_killed_worker_leaves_each_subscription_where_it_was(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    gated = (
        "  sale_outbox_item:\n    storage: log\n    subscriptions:\n"
        f"      billing: {{transports: {{transports.Gate: {{folder: '{tmp_path}'}}}}}}\n"
        f"      search: {{transports: {{file: {{path: '{tmp_path}/search.jsonl', fsync: false}}}}}}\n"
    )
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more=gated)
    project.run("db", "create")
    project.fill(3, keys=3, box="sale_outbox_item")
    with project.worker("--boxes", "sale_outbox_item") as worker:
        eventually(lambda: (tmp_path / "reached").exists() and len(lines(tmp_path / "search.jsonl")) == 3)
        worker.kill()
    (tmp_path / "open").touch()
    (tmp_path / "calls").unlink()
    with project.worker("--boxes", "sale_outbox_item") as worker:
        eventually(lambda: len(set(lines(tmp_path / "calls"))) == 3)
        assert worker.stop() == 0
    assert pending(project) == [0, 0]


def pending(project: Project) -> list[int]:
    return [row["pending"] for row in json.loads(project.run("subscriptions", "list", "--json"))]


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
