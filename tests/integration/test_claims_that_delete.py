"""Claims that delete as they read, on PostgreSQL: what others do to their rows before and after."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.dialects import postgresql_reads
from boxengine.adapters.sql.dialects.postgresql import PostgresStatements
from boxengine.domain.box import Box, Retention, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from tests.conformance import sql_stores
from tests.conformance.sql_stores import SqlHarness
from tests.eventually import eventually

PATIENCE = 30
"""Seconds after which a thread counts as hanging."""


@pytest.fixture
def harness(postgres_url: str) -> Iterator[SqlHarness]:
    opened = sql_stores.postgresql(postgres_url)
    yield opened
    opened.close()


def claimed_while_somebody_changes(
    harness: SqlHarness, url: str, box: Box, row_id: int, change: str, *, plain: bool
) -> list[int]:
    """What a claim takes and settles that waits for a row until its change is committed."""

    def claim_all() -> list[int]:
        claims = harness.store.plain_claims(box) if plain else harness.store.claims(box)
        with claims.open({0: None}, 10) as claim:
            ids = [item.id for item in claim.items]
            claim.commit(Settlement(delivered=ids))
            return ids

    with (
        ThreadPoolExecutor(1) as worker,
        psycopg.connect(url.replace("+psycopg", "")) as operator,
        psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as onlooker,
    ):
        operator.execute(f"UPDATE {box.table} SET {change} WHERE id = %s".encode(), (row_id,))
        claiming = worker.submit(claim_all)
        waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        eventually(lambda: onlooker.execute(waiting).fetchone() is not None)
        operator.commit()
        return claiming.result(PATIENCE)


@pytest.mark.parametrize("plain", [False, True])
def test_a_row_that_somebody_is_just_discarding_is_waited_for_and_not_claimed(
    harness: SqlHarness, postgres_url: str, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgresql_reads.PATIENCE, "lock_timeout", f"{PATIENCE}s")
    box = harness.make_box(retention=Retention(delivered=timedelta(0)))
    doomed, other = harness.insert(box), harness.insert(box)

    claimed = claimed_while_somebody_changes(harness, postgres_url, box, doomed, "status = 3", plain=plain)
    assert claimed == [other]
    assert harness.statuses(box, doomed, other) == [Status.DISCARDED, None]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("strict_order", "change"),
    [
        (StrictOrder.KEY, "status = 1"),
        (StrictOrder.KEY, "available_at = now() + interval '1 day'"),
        (StrictOrder.BUCKET, "available_at = now() + interval '1 day'"),
    ],
)
def test_what_follows_a_row_that_somebody_is_just_putting_off_is_not_claimed(
    harness: SqlHarness,
    postgres_url: str,
    strict_order: StrictOrder,
    change: str,
    plain: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(postgresql_reads.PATIENCE, "lock_timeout", f"{PATIENCE}s")
    box = harness.make_box(retention=Retention(delivered=timedelta(0)), strict_order=strict_order)
    earlier, doomed, follower = (harness.insert(box, event_key=key) for key in "abb")

    claimed = claimed_while_somebody_changes(harness, postgres_url, box, doomed, change, plain=plain)
    assert claimed == [earlier]
    assert harness.statuses(box, earlier, follower) == [None, Status.PENDING]


def test_what_an_operator_discards_while_they_come_back_stays_discarded(
    harness: SqlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = harness.make_box(retention=Retention(delivered=timedelta(0)), max_retries=5)
    doomed, other = harness.insert(box), harness.insert(box)
    attempts = [FailedAttempt(row, Status.PENDING, 1, "timeout") for row in (doomed, other)]
    bring_back = PostgresStatements.bring_back
    discarding: list[Future[None]] = []

    def slowly(statements: PostgresStatements, cursor: Cursor) -> None:
        bring_back(statements, cursor)
        # The operator has waited for the row since before it was brought back, and now comes first.
        discarding[0].result(PATIENCE)

    monkeypatch.setattr(PostgresStatements, "bring_back", slowly)
    with ThreadPoolExecutor(1) as operator, harness.store.plain_claims(box).open({0: None}, 10) as claim:
        discarding.append(operator.submit(harness.set_row, box, doomed, status=int(Status.DISCARDED)))
        claim.commit(Settlement(failed=attempts))
    assert harness.statuses(box, doomed, other) == [Status.DISCARDED, Status.PENDING]
    assert [row["errors_count"] for row in harness.rows(box)] == [0, 1]


def test_a_plain_claim_has_nothing_that_users_code_could_work_with(harness: SqlHarness) -> None:
    box = harness.make_box(retention=Retention(delivered=timedelta(0)))
    row = harness.insert(box)
    with harness.store.plain_claims(box).open({0: None}, 10) as claim:
        assert not {"session", "savepoint", "later_delivered"} & set(dir(claim))
    assert harness.statuses(box, row) == [Status.PENDING]
