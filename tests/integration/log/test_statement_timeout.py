"""Accounts with a ``statement_timeout``: what waits for others, or reads all of a log, has limits of its own. Broken off sooner,
it would never be done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.converting import steps
from boxengine.adapters.sql.log import foreign, moving, turnover
from boxengine.adapters.sql.log.foreign import reposition
from boxengine.adapters.sql.log.moving import Mover
from boxengine.adapters.sql.log.stage import Stage
from boxengine.errors import StoreConflict
from boxengine.ports import Turnover
from tests.eventually import eventually
from tests.integration.converting.bench import LOG
from tests.integration.converting.bench import bench as converted
from tests.integration.log.bench import Bench
from tests.integration.log.parted import close
from tests.servers.databases import with_setting

LONGER = 2
"""Seconds of patience: more than a statement may take."""


@pytest.fixture
def limited(postgres_url: str) -> str:
    return with_setting(postgres_url, "statement_timeout=1000")


@pytest.fixture
def log(limited: str) -> Iterator[Bench]:
    made = Bench(limited)
    with closing(made.store):
        yield made


def test_a_conversion_waits_for_a_delivery_as_long_as_it_says(limited: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "FOR_DELIVERIES", LONGER)
    with converted(limited) as box:
        box.bring_to(Stage.LOG)
        box.commit(LOG, "a")
        with (
            box.stores[LOG].plain_claims(box.boxes[LOG]).open({0: 0}, 100),
            pytest.raises(StoreConflict, match="a delivery takes longer than this command waits"),
        ):
            box.conversion().back()


def test_positions_of_another_server_wait_for_writers_as_long_as_they_may(
    log: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "_PATIENCE", LONGER)
    with log.engine.connect() as writer:
        item = log.put(writer)
        with pytest.raises(StoreConflict):
            reposition(log.engine, log.box, anyway=True)
        writer.commit()
    assert reposition(log.engine, log.box, anyway=True) == 1
    assert log.take() == [item]


def test_a_way_ahead_waits_for_a_delivery_as_long_as_it_says(log: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "PATIENCE", LONGER)
    log.commit()
    with (
        log.store.plain_claims(log.box).open({0: None}, 10),
        pytest.raises(StoreConflict, match="boxengine pause order_item, repeat the command"),
    ):
        Mover(log.engine, log.box).ahead(None)


def test_a_partition_goes_as_a_whole_however_long_it_takes_to_look_through(
    limited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turnover, "PATIENCE", "1min")
    monkeypatch.setattr(turnover, "ATTEMPTS", 1)
    bench = Bench(limited, log_partitions=timedelta(days=1))
    done: list[Turnover | None] = []
    later = datetime.now(UTC) + timedelta(minutes=1)
    passing = threading.Thread(target=lambda: done.append(bench.store.turn_over(bench.box, created_before=later)))
    overdue = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
        "AND now() - query_start > interval '2 seconds'"
    )
    with closing(bench.store):
        item = bench.commit()
        assert bench.take() == [item]
        close(bench)
        with bench.engine.connect() as other:
            other.execute(sa.text("LOCK TABLE order_items_positions IN ACCESS EXCLUSIVE MODE"))
            passing.start()
            try:
                eventually(lambda: done or bench.ask(overdue))
            finally:
                other.rollback()
                passing.join()
    assert done[0] is not None
    assert done[0].deleted == 1
