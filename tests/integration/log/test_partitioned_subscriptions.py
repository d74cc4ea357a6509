"""Partitions of a log that several subscriptions read: they go when the last one has passed them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.log import turnover
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Retention
from tests.integration.log.parted import close
from tests.integration.log.shared import NAMES, SharedLog, reader_of, send_back_during, shared_log


@pytest.fixture
def log(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedLog]:
    monkeypatch.setattr(turnover, "ATTEMPTS", 1)
    with shared_log(postgres_url, log_partitions=timedelta(days=1)) as log:
        yield log


def deleted(log: SharedLog, reader: str = "billing") -> int:
    """How many rows go with their partitions, for a pass of this subscription for which everything is old."""
    soon = datetime.now(UTC) + timedelta(minutes=1)
    done = log.store.turn_over(log.readers[reader], created_before=soon)
    assert done is not None
    return done.deleted


def test_a_subscription_that_was_stopped_keeps_what_it_has_not_passed(log: SharedLog) -> None:
    items = [log.commit(), log.commit()]
    close(log)
    assert log.read("billing") == items
    assert deleted(log) == 0
    assert log.read("search") == items
    assert deleted(log, "search") == 2


def test_a_subscription_that_this_worker_does_not_know_keeps_it_too(log: SharedLog) -> None:
    item = log.commit()
    close(log)
    for name in NAMES:
        assert log.read(name) == [item]
    log.readers["audit"] = reader_of(replace(log.box, subscriptions=(*NAMES, "audit")), "audit")
    schema.create(log.engine, [log.readers["audit"]])
    assert deleted(log) == 0
    assert log.read("audit") == [item]
    assert deleted(log) == 1


def test_nothing_goes_while_somebody_adds_a_subscription(log: SharedLog) -> None:
    item = log.commit()
    close(log)
    for name in NAMES:
        assert log.read(name) == [item]
    with log.engine.connect() as adding:
        adding.execute(sa.text("INSERT INTO order_items_readers (name) VALUES ('audit')"))
        assert deleted(log) == 0
        adding.rollback()
    assert deleted(log) == 1


def test_nothing_goes_to_which_a_subscription_is_sent_back_meanwhile(
    log: SharedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turnover, "PATIENCE", "1min")
    items = [log.commit(), log.commit()]
    close(log)
    assert deleted(log) == 0  # makes the next partition, for which it would wait later
    for name in NAMES:
        assert log.read(name) == items
    send_back_during(log, items[0], lambda: deleted(log))
    assert log.read("billing") == items
    assert deleted(log) == 2


def test_what_is_over_the_limit_goes_though_a_subscription_has_not_passed_it(log: SharedLog) -> None:
    old = log.commit()
    log.run(f"UPDATE order_items_log SET created_at = created_at - interval '3 days' WHERE id = {old}")
    close(log)
    assert log.read("billing") == [old]
    assert deleted(log) == 0
    log.readers["billing"] = replace(log.readers["billing"], retention=Retention(at_most=timedelta(days=4)))
    assert deleted(log) == 0
    log.readers["billing"] = replace(log.readers["billing"], retention=Retention(at_most=timedelta(days=2)))
    assert deleted(log) == 1
    young = log.commit()
    assert log.read("search") == [young]
