"""A worker whose transport reaches nobody for a while."""

from __future__ import annotations

from collections import defaultdict
from threading import Event
from typing import Any

from boxengine.engine.delivering.calls.pipeline import TransportSpec
from boxengine.errors import Unavailable
from tests.integration.engine.receivers import BatchReceiver
from tests.integration.engine.rig import constant
from tests.integration.engine.rigs import ON_POSTGRESQL, MakeRig

MANY = 5_000
"""Items that wait for a receiver: more of each bucket than the largest batch."""


def test_an_outage_of_the_receiver_uses_up_no_attempt_and_keeps_the_order(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 0})
    there, tried = Event(), Event()

    def answer(_item: Any) -> None:
        if not there.is_set():
            tried.set()
            raise Unavailable("nobody is there")

    receiver = BatchReceiver(answer)
    rig.carry(kafka=receiver)
    ids = rig.create(*["k"] * 20)
    with rig.worker() as watcher:
        assert tried.wait(60)
        watcher.wait_for(lambda: bool(watcher.outages))
        assert {(row.status, row.errors_count, row.processed_at) for row in rig.rows().values()} == {(0, 0, None)}
        there.set()
        watcher.wait_for_settled(20)
    assert rig.statuses() == [2] * 20
    assert list(dict.fromkeys(receiver.ids)) == ids
    assert watcher.outages == [("transport kafka of order_outbox_item", "nobody is there")]
    assert watcher.recovered_from == ["transport kafka of order_outbox_item"]
    assert rig.tracked == []


def _to_two_receivers(make_rig: MakeRig, storage: str) -> None:
    """The receiver of mail is away; the one of news gets its own all the same, and nobody is overtaken."""
    rig = make_rig(box={"storage": storage, "strict_order": "key", "bucket_size": 2})
    there = Event()

    def mail_arrives(_item: Any) -> None:
        if not there.is_set():
            raise Unavailable("nobody is there")

    arrived: list[tuple[str, int]] = []

    def noted(receiver: Any, answer: Any) -> Any:
        def call(item: Any) -> Any:
            result = answer(item)
            arrived.append((item.event_key, item.id))
            return result

        receiver.answer = call
        return receiver

    mail, news = noted(BatchReceiver(), mail_arrives), noted(BatchReceiver(), lambda _item: None)
    rig.carry(
        TransportSpec(name="mail", build=constant(mail), event_name="mail"),
        TransportSpec(name="news", build=constant(news), event_name="news"),
    )
    waiting = rig.create(*(f"order {number}" for number in range(MANY)), event_name="mail")
    behind = rig.create(*(f"order {number}" for number in range(0, MANY, 10)), event_name="news")
    free = rig.create(*(f"paper {number}" for number in range(MANY)), event_name="news")
    with rig.worker() as watcher:
        watcher.wait_for_settled(len(free))
        late = rig.create(*(f"late {number}" for number in range(20)), event_name="news")
        watcher.wait_for_settled(len(free) + len(late))
        assert sorted(row_id for _, row_id in arrived) == sorted([*free, *late])
        there.set()
        watcher.wait_for_settled(len(free) + len(late) + len(waiting) + len(behind))
    assert len(arrived) == len({row_id for _, row_id in arrived})
    of_key: dict[str, list[int]] = defaultdict(list)
    for key, row_id in arrived:
        of_key[key].append(row_id)
    assert all(ids == sorted(ids) for ids in of_key.values())
    assert rig.tracked == []


def test_the_items_of_other_transports_go_on_however_many_wait(make_rig: MakeRig) -> None:
    _to_two_receivers(make_rig, "table")


@ON_POSTGRESQL
def test_those_of_a_log_do_so_too(make_rig: MakeRig) -> None:
    _to_two_receivers(make_rig, "log")
