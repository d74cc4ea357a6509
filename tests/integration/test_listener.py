"""A listener that hears nothing connects anew: nothing else would tell it that it hears another server than the writers'."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.waking import listen
from boxengine.adapters.sql.waking.listen import PostgresWakeups

MOMENT = timedelta(milliseconds=1)
LONG = timedelta(seconds=60)


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    engine = connect(postgres_url, connections=1)
    yield engine
    engine.dispose()


@pytest.fixture
def wakeups(engine: Engine) -> Iterator[PostgresWakeups]:
    wakeups = PostgresWakeups(engine)
    yield wakeups
    wakeups.close()


def notify(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("NOTIFY boxengine, 'order_outbox_item'"))


def process_of(wakeups: PostgresWakeups) -> int:
    """The server process that it listens at."""
    assert wakeups._connection is not None
    return wakeups._connection.info.backend_pid


def test_it_connects_anew_after_a_long_silence_and_hears_again(
    wakeups: PostgresWakeups, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakeups.wait(MOMENT)
    before = process_of(wakeups)
    monkeypatch.setattr(listen, "SILENCE", 2 * MOMENT)
    wakeups.wait(MOMENT)
    wakeups.wait(MOMENT)
    assert wakeups.wait(LONG) == []
    assert process_of(wakeups) != before
    assert wakeups.reliable
    notify(engine)
    assert [signal.box_name for signal in wakeups.wait(LONG)] == ["order_outbox_item"]


def test_what_it_hears_ends_a_silence(
    wakeups: PostgresWakeups, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "SILENCE", 2 * MOMENT)
    wakeups.wait(MOMENT)
    before = process_of(wakeups)
    notify(engine)
    assert wakeups.wait(LONG)
    assert wakeups.wait(MOMENT) == []
    assert process_of(wakeups) == before


def test_it_tells_at_once_that_it_has_begun_to_listen_anew_after_other_connections_were_lost(
    wakeups: PostgresWakeups, engine: Engine
) -> None:
    assert (wakeups.wait(LONG), wakeups.beginnings) == ([], 1)
    notify(engine)
    assert wakeups.wait(LONG)
    assert wakeups.beginnings == 1
    engine.dispose()
    notify(engine)
    assert (wakeups.wait(LONG), wakeups.beginnings) == ([], 2)


def test_an_interruption_ends_a_wait_that_is_under_way_and_every_later_one(wakeups: PostgresWakeups) -> None:
    wakeups.wait(MOMENT)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wakeups.wait, LONG)
        wakeups.interrupt()
        assert waiting.result(timeout=30) == []
    assert wakeups.wait(LONG) == []


def test_who_is_interrupted_before_the_first_wait_connects_to_nothing(wakeups: PostgresWakeups) -> None:
    wakeups.interrupt()
    assert wakeups.wait(LONG) == []
    assert wakeups._connection is None


def test_what_came_with_the_answer_to_another_statement_is_heard(wakeups: PostgresWakeups, engine: Engine) -> None:
    wakeups.wait(MOMENT)
    notify(engine)
    assert wakeups._connection is not None
    wakeups._connection.execute("SELECT 1")
    assert [signal.box_name for signal in wakeups.wait(LONG)] == ["order_outbox_item"]
