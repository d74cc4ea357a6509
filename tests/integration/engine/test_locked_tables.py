"""A table that somebody else has locked, as a long migration does: its box waits, and the others do not."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.app.checking.bucket_sizes import refuse_other_sizes
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.domain.box import Retention
from boxengine.domain.item import Status
from boxengine.domain.outcome import Settlement
from boxengine.errors import StoreConflict
from tests.conformance import sql_stores
from tests.eventually import eventually
from tests.integration.engine.receivers import BatchReceiver
from tests.integration.engine.rig import BOX
from tests.integration.engine.rigs import MakeRig
from tests.integration.locking import impatient, locked
from tests.servers.databases import with_setting

OTHER = "other_outbox_item"


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
        with locked(rig.engine, rig.box(BOX).table):
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
    with locked(rig.engine, rig.box(BOX).table):
        store = connect_servers(rig.boxes.resolved.settings).store
        refuse_other_sizes(rig.boxes.resolved, [], store)
        store.close()
        with rig.worker() as watcher:
            watcher.wait_for_settled(1)
            assert rig.statuses(OTHER) == [Status.DELIVERED]


# ── a claim ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("retention", [Retention(), Retention(delivered=timedelta(0))], ids=["kept", "deleted"])
def test_a_claim_of_a_locked_table_gives_up_and_leaves_its_thread_to_other_boxes(
    database: str, retention: Retention, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.connecting.engine.ROW_LOCK_WAIT", 1)
    url = impatient(database)
    harness = sql_stores.postgresql(url) if database.startswith("postgresql") else sql_stores.mysql(url)
    box = harness.make_box(retention=retention)
    item = harness.insert(box)
    claims = harness.store.plain_claims(box) if plain else harness.store.claims(box)
    engine = sa.create_engine(database)
    with claims.open({0: None}, 4) as claim:
        assert [each.id for each in claim.items] == [item]
    with locked(engine, box.table), pytest.raises(StoreConflict), claims.open({0: None}, 4):
        pass
    with claims.open({0: None}, 4) as claim:
        assert [each.id for each in claim.items] == [item]
    engine.dispose()
    harness.close()


def test_outcomes_wait_for_whoever_locks_the_table_against_writers_once_items_are_claimed(postgres_url: str) -> None:
    """As CREATE INDEX does. All items of the batch are sent, and would be sent again if their outcomes were given up."""
    harness = sql_stores.postgresql(postgres_url)
    box = harness.make_box()
    item = harness.insert(box)
    engine = sa.create_engine(postgres_url)
    long = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() "
        "AND query_start < clock_timestamp() - interval '1 second'"
    )
    over = threading.Event()

    def let_go(connection: sa.Connection) -> None:
        with engine.connect() as looking:
            eventually(lambda: bool(looking.scalar(sa.text(long))) or over.is_set())
        connection.rollback()

    with harness.store.plain_claims(box).open({0: None}, 4) as claim, engine.connect() as somebody:
        somebody.execute(sa.text(f"LOCK TABLE {box.table} IN SHARE MODE"))
        letting_go = threading.Thread(target=let_go, args=[somebody])
        letting_go.start()
        try:
            assert claim.commit(Settlement(delivered=[item])) is None
        finally:
            over.set()
            letting_go.join()
    assert harness.statuses(box, item) == [Status.DELIVERED]
    engine.dispose()
    harness.close()


def test_handlers_wait_for_locks_as_long_as_the_url_says(postgres_url: str) -> None:
    harness = sql_stores.postgresql(with_setting(postgres_url, "lock_timeout=77s"))
    box = harness.make_box()
    harness.insert(box)
    with harness.store.claims(box).open({0: None}, 4) as claim:
        assert claim.session.scalar(sa.text("SHOW lock_timeout")) == "77s"
    harness.close()
