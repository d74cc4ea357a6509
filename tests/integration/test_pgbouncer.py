"""A worker whose ``database.url`` leads through PgBouncer, which hands each transaction to any of its server connections."""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg._pipeline_base import BasePipeline
from sqlalchemy import make_url, text

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.waking.listen import PostgresWakeups
from boxengine.app.servers import database
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.domain.item import Status
from boxengine.errors import StoreUnavailable
from tests.eventually import eventually
from tests.integration.engine.receivers import FailsFirst, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.watcher import PATIENCE, Watcher
from tests.servers.pgbouncer import PgBouncer

BOXES: dict[str, Any] = {"order_outbox_item": False, "bucket_outbox_item": True, "key_outbox_item": "key"}
RETRIES = {"minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1}
PER_BOX, KEYS = 1700, 60
FEW = 3
"""Server connections: fewer than the workers have threads, so that each serves many clients in turn."""
MakeRig = Callable[..., Rig]
StartBouncer = Callable[..., PgBouncer]


@pytest.fixture
def make_rig(tmp_path: Path, postgres_url: str, redis_url: str, pgbouncer: StartBouncer) -> Iterator[MakeRig]:
    """Makes rigs whose database is behind a PgBouncer of these options."""
    with ExitStack() as stack:

        def make(*, options: dict[str, Any] | None = None, **config: Any) -> Rig:
            url = pgbouncer(**(options or {})).url(postgres_url)
            rig = stack.enter_context(Rig(tmp_path, database=url, redis=redis_url, **config))
            rig.create_tables()
            return rig

        yield make


@pytest.fixture
def server(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection past the pooler."""
    address = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection


# ── deliveries ───────────────────────────────────────────────────────────────────────────────────────


def test_two_workers_deliver_five_thousand_items_once_and_in_order_in_boxes_of_every_order(make_rig: MakeRig) -> None:
    boxes = {name: {"strict_order": order} for name, order in BOXES.items()}
    rig = make_rig(options={"pool_size": FEW}, outbox_items=boxes, bucket_size=8)
    receivers = {name: Receiver() for name in BOXES}
    for name, receiver in receivers.items():
        rig.carry(receiver, box=name)
    ids = {name: rig.create(*(number % KEYS for number in range(PER_BOX)), box=name) for name in BOXES}
    watcher = Watcher()
    with rig.worker(watcher), rig.worker(watcher):
        watcher.wait_for_settled(len(BOXES) * PER_BOX)
    assert watcher.outages == []
    for name, receiver in receivers.items():
        assert Counter(receiver.ids) == dict.fromkeys(ids[name], 1)
        assert all(own == sorted(own) for own in receiver.by_key.values())
        assert set(rig.statuses(name)) == {Status.DELIVERED}


@pytest.mark.parametrize("order", [True, "key"])
def test_a_failing_item_holds_back_its_followers_through_the_pooler_too(make_rig: MakeRig, order: Any) -> None:
    box = {"strict_order": order, **RETRIES}
    rig = make_rig(options={"pool_size": FEW}, box=box)
    receiver = Receiver(FailsFirst(2, guilty=lambda item: item.id % 40 == 0))
    rig.carry(receiver)
    ids = rig.create(*(number % 10 for number in range(400)))
    watcher = Watcher()
    with rig.worker(watcher), rig.worker(watcher):
        watcher.wait_for(lambda: len(watcher.delivered) >= len(ids))
    first = {key: list(dict.fromkeys(own)) for key, own in receiver.by_key.items()}
    assert all(own == sorted(own) for own in first.values())
    assert Counter(watcher.delivered) == dict.fromkeys(ids, 1)
    assert watcher.outages == []


def test_a_bucket_held_through_one_client_is_refused_to_another_until_the_transaction_ends(make_rig: MakeRig) -> None:
    rig = make_rig(options={"pool_size": FEW})
    rig.create("a", bucket=0)
    one, other = (database.connect_store(rig.boxes.resolved.settings) for _ in range(2))
    with one.claims(rig.box()).open({0: 0}, 10) as claim:
        assert len(claim.items) == 1
        with other.claims(rig.box()).open({0: 0}, 10) as refused:
            assert refused.refused == {0}
            assert not refused.items
    with other.claims(rig.box()).open({0: 0}, 10) as claim:
        assert len(claim.items) == 1
    one.close()
    other.close()


@pytest.mark.parametrize("at_once", [False, True], ids=["kept", "deleted"])
def test_a_locked_row_holds_back_its_own_bucket_alone(
    make_rig: MakeRig, server: psycopg.Connection[Any], at_once: bool
) -> None:
    retention = {"retention_delivered_items": "PT0S"} if at_once else {}
    rig = make_rig(outbox_items={BOX: {"bucket_size": 4, **retention}})
    receiver = Receiver()
    rig.carry(receiver)
    ids = [rig.insert(bucket=bucket, event_key=str(bucket)) for bucket in range(4)]
    with rig.worker() as watcher:
        with server.transaction():
            server.execute(f"UPDATE {rig.box(BOX).table} SET event_key = event_key WHERE id = {ids[0]}".encode())
            later = [rig.insert(bucket=bucket, event_key=str(bucket)) for bucket in range(4)]
            watcher.wait_for(lambda: {*ids[1:], *later[1:]} <= {*receiver.ids})
        watcher.wait_for_settled(8)
    assert receiver.by_key["0"] == [ids[0], later[0]]


def test_nothing_of_a_worker_stays_with_the_pooled_connections(
    make_rig: MakeRig, server: psycopg.Connection[Any]
) -> None:
    rig = make_rig(options={"pool_size": 1})
    rig.carry(Receiver())
    rig.create(*range(50))
    rig.deliver(50)
    # Databases of other tests are on the same server.
    own = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    locks = server.execute(f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND {own}".encode())
    assert locks.fetchone() == (0,)
    with rig.engine.connect() as pooled:
        assert pooled.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one() == "0"
        assert pooled.execute(text("SELECT count(*) FROM pg_prepared_statements")).scalar_one() == 0
        assert pooled.execute(text("SELECT count(*) FROM pg_listening_channels()")).scalar_one() == 0


@pytest.mark.parametrize("comments", [False, True])
@pytest.mark.parametrize("storage", ["table", "log"])
def test_no_server_stays_with_a_worker_that_has_committed(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, storage: str, comments: bool
) -> None:
    # The driver sends a Flush behind the last Sync of a pipeline. A busy machine may send it after the answers have come.
    fetch = BasePipeline._fetch_gen

    def late(self: Any, *, flush: bool) -> Any:
        if flush and self.result_queue:
            select.select([self.pgconn.socket], [], [], PATIENCE)
        return fetch(self, flush=flush)

    monkeypatch.setattr(BasePipeline, "_fetch_gen", late)
    rig = make_rig(options={"pool_size": 1}, box={"storage": storage}, connection={"comments": comments})
    rig.carry(Receiver())
    rig.create(*range(10))
    rig.deliver(10)
    with rig.engine.connect() as another:
        assert another.execute(text("SELECT 1")).scalar_one() == 1


# ── prepared statements ──────────────────────────────────────────────────────────────────────────────


def threshold(url: str, **options: Any) -> int | None:
    engine = connect(url, connections=1, **options)
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        found: int | None = driver.prepare_threshold
    engine.dispose()
    return found


def test_statements_are_prepared_unless_a_pooler_stands_before_the_server(
    postgres_url: str, pgbouncer: StartBouncer
) -> None:
    assert threshold(postgres_url) is not None
    assert threshold(pgbouncer().url(postgres_url)) is None
    assert threshold(pgbouncer(pool_mode="session").url(postgres_url)) is None


def test_what_is_configured_about_prepared_statements_goes_first(postgres_url: str, pgbouncer: StartBouncer) -> None:
    assert threshold(postgres_url, prepared=False) is None
    assert threshold(pgbouncer().url(postgres_url), prepared=True) is not None


# ── wake-ups ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_listener_behind_a_pooler_says_what_to_set_once_and_items_are_delivered_by_polls(make_rig: MakeRig) -> None:
    rig = make_rig(wakeup="notify")
    rig.carry(Receiver())
    with rig.worker() as watcher:
        watcher.wait_for(lambda: bool(watcher.outages))
        rig.create(*range(10))
        watcher.wait_for_settled(10)
    ((what, reason),) = watcher.outages
    assert what == "listener"
    assert "database.listen_url" in reason
    assert "wakeup: redis" in reason


def test_a_listener_with_an_address_of_its_own_hears_commits_that_go_through_the_pooler(
    make_rig: MakeRig, postgres_url: str
) -> None:
    rig = make_rig(wakeup="notify", connection={"listen_url": postgres_url})
    connected = connect_servers(rig.boxes.resolved.settings)
    wakeups = connected.wakeups
    assert isinstance(wakeups, PostgresWakeups)
    assert wakeups.wait(timedelta(0)) == []
    assert wakeups.reliable
    rig.create("a")
    assert [signal.box_name for signal in wakeups.wait(timedelta(seconds=PATIENCE))] == [BOX]
    connected.close()


def test_a_pooler_by_session_may_be_listened_through_if_it_is_named(make_rig: MakeRig, postgres_url: str) -> None:
    rig = make_rig(options={"pool_mode": "session"})
    url = rig.config["database"]["url"]
    with pytest.raises(StoreUnavailable, match="connection pooler"):
        PostgresWakeups(rig.engine).wait(timedelta(0))
    wakeups = PostgresWakeups(rig.engine, listen_url=url)
    wakeups.wait(timedelta(0))
    with rig.engine.begin() as connection:
        connection.execute(text("SELECT pg_notify('boxengine', 'order_outbox_item:1')"))
    assert [signal.bucket for signal in wakeups.wait(timedelta(seconds=PATIENCE))] == [1]
    wakeups.close()


def test_wake_ups_through_redis_need_no_session(make_rig: MakeRig) -> None:
    rig = make_rig(wakeup="redis", poller={"tactic": "default"})
    rig.carry(Receiver())
    with rig.worker() as watcher:
        eventually(lambda: watcher.outages == [])
        rig.create(*range(10))
        watcher.wait_for_settled(10)
    assert watcher.outages == []
