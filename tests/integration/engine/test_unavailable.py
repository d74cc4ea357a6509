"""A worker whose transport reaches nobody for a while."""

from __future__ import annotations

from threading import Event
from typing import Any

from boxengine.errors import Unavailable
from tests.integration.engine.receivers import BatchReceiver
from tests.integration.engine.rigs import MakeRig


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
