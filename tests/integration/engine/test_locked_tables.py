"""A table that somebody else has locked, as a long migration does: its box waits, and the others do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.app.checking.bucket_sizes import refuse_other_sizes
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.domain.item import Status
from tests.eventually import eventually
from tests.integration.engine.receivers import BatchReceiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import MakeRig

OTHER = "other_outbox_item"


@contextmanager
def locked(rig: Rig, table: str) -> Iterator[None]:
    """The whole table, against readers too."""
    with rig.engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
        else:
            connection.execute(sa.text(f"LOCK TABLES {table} WRITE"))
        try:
            yield
        finally:
            if connection.dialect.name != "postgresql":
                connection.execute(sa.text("UNLOCK TABLES"))
            connection.rollback()


@pytest.mark.parametrize("idle", [0, 10], ids=["each looked at alone", "looked at together"])
def test_a_locked_table_keeps_no_other_box_waiting(make_rig: MakeRig, idle: int) -> None:
    boxes: dict[str, Any] = {
        name: {} for name in (BOX, OTHER, *(f"idle{number}_outbox_item" for number in range(idle)))
    }
    rig = make_rig(outbox_items=boxes, processor={"threads_count": 2, "brpop_delay": 0.2})
    rig.carry(BatchReceiver())
    rig.carry(BatchReceiver(), box=OTHER)
    rig.insert()
    with rig.worker() as watcher:
        watcher.wait_for_settled(1)
        with locked(rig, rig.box(BOX).table):
            watcher.wait_for(lambda: any(what == f"polling {BOX}" for what, _ in watcher.outages))
            for settled in (2, 3, 4):  # what is written by plain SQL is found by looking, and by nothing else
                rig.insert(box=OTHER)
                watcher.wait_for_settled(settled)
        rig.insert()
        watcher.wait_for_settled(5)
    eventually(lambda: set(rig.statuses()) == {Status.DELIVERED})


def test_a_worker_that_starts_while_a_table_is_locked_works_on_the_other_boxes(make_rig: MakeRig) -> None:
    rig = make_rig(outbox_items={BOX: {}, OTHER: {}}, processor={"threads_count": 2, "brpop_delay": 0.2})
    rig.carry(BatchReceiver())
    rig.carry(BatchReceiver(), box=OTHER)
    rig.insert()
    rig.insert(box=OTHER)
    with locked(rig, rig.box(BOX).table):
        store = connect_servers(rig.boxes.resolved.settings).store
        refuse_other_sizes(rig.boxes.resolved, [], store)
        store.close()
        with rig.worker() as watcher:
            watcher.wait_for_settled(1)
            assert rig.statuses(OTHER) == [Status.DELIVERED]
