"""A handler that is the victim of a deadlock, whether it lets the error pass or catches it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from boxengine.domain.item import Item, Status
from tests.eventually import eventually
from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import MakeRig

HEAVY = 200
"""Rows that the other transaction writes: MariaDB gives up the one that has written less."""
CHANGE = sa.text("UPDATE accounts SET amount = amount + 1 WHERE id = :id")


def _passes(error: DBAPIError) -> None:
    raise error


def _ignores(_error: DBAPIError) -> None:
    """The transaction has failed; so has what the handler writes next."""


def _raises_another(_error: DBAPIError) -> None:
    raise ValueError("no transfer")


class Transfer:
    """Changes accounts 1 and 2. The first time, somebody else changes 2 and 1."""

    def __init__(self, rig: Rig, then: Callable[[DBAPIError], None] = _passes) -> None:
        """``then`` is called with the error of the deadlock."""
        self._rig = rig
        self._then = then
        self._other: threading.Thread | None = None
        self.calls = 0
        self.errors: list[DBAPIError] = []

    def __call__(self, item: Item, payload: Any, *, session: Session) -> None:
        self.calls += 1
        session.execute(CHANGE, {"id": 1})
        if self._other is None:
            self._other = threading.Thread(target=self._change_backwards)
            self._other.start()
            eventually(self._other_waits)
        try:
            session.execute(CHANGE, {"id": 2})
        except DBAPIError as error:
            self.errors.append(error)
            self._other.join(timeout=30)
            self._then(error)

    def _change_backwards(self) -> None:
        with self._rig.engine.begin() as connection:
            if self._on_postgresql:  # which gives up the one whose patience ends first
                connection.execute(sa.text("SET LOCAL deadlock_timeout = '25s'"))
            connection.execute(sa.text("UPDATE accounts SET amount = amount + 100 WHERE id > 2"))
            connection.execute(CHANGE, {"id": 2})
            connection.execute(CHANGE, {"id": 1})

    @property
    def _on_postgresql(self) -> bool:
        return bool(self._rig.engine.dialect.name == "postgresql")

    def _other_waits(self) -> bool:
        if self._on_postgresql:
            waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            return bool(self._rig.ask(waits))
        ((_, waiting),) = self._rig.ask("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
        return int(waiting) > 0


class Transfers(Transfer):
    """The same for whole batches."""

    def call_batch(self, items: Sequence[Item], *, session: Session) -> list[None]:
        for item in items:
            self(item, item.payload, session=session)
        return [None] * len(items)


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    rig = make_rig(box={"bucket_size": 1, "max_retries": 0})
    rig.execute("CREATE TABLE accounts (id int PRIMARY KEY, amount int NOT NULL)")
    for account in range(1, HEAVY + 3):
        rig.execute("INSERT INTO accounts VALUES (:id, 0)", id=account)
    return rig


@pytest.mark.parametrize(
    ("kind", "then"),
    [(Transfer, _passes), (Transfer, _ignores), (Transfers, _passes), (Transfers, _raises_another)],
)
def test_it_is_called_again_without_a_failed_attempt_and_writes_everything_once(
    rig: Rig, kind: type[Transfer], then: Callable[[DBAPIError], None]
) -> None:
    transfer = kind(rig, then)
    rig.carry(transfer)
    (item,) = rig.create("a")
    with rig.worker() as watcher:
        eventually(lambda: rig.row(item).status == Status.DELIVERED, what="its delivery")
    assert len(transfer.errors) == 1
    assert watcher.outages == []
    assert (rig.row(item).errors_count, rig.row(item).error_log) == (0, None)
    # One from the other transaction, one from the attempt that succeeded; nothing of the first one's half.
    amounts = rig.ask("SELECT amount FROM accounts WHERE id IN (1, 2) ORDER BY id")
    assert [row.amount for row in amounts] == [2, 2]


def test_one_that_gets_over_it_and_fails_of_something_else_has_failed(rig: Rig) -> None:
    if rig.engine.dialect.name != "postgresql":
        return  # the server ends the whole transaction, savepoints and all

    class Careful(Transfer):
        def __call__(self, item: Item, payload: Any, *, session: Session) -> None:
            with suppress(ValueError), session.begin_nested():
                super().__call__(item, payload, session=session)
            raise LookupError("no such account")

    rig.carry(transfer := Careful(rig, _raises_another))
    (item,) = rig.create("a")
    with rig.worker():
        eventually(lambda: rig.row(item).status == Status.FAILED, what="its failure")
    assert transfer.calls == 1
    assert "LookupError: no such account" in rig.row(item).error_log
