"""The audit of a table, by what stands in its rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.looking.audit import SqlAudit
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.adapters.system import SystemClock
from boxengine.domain.box import Backoff, Retention, StrictOrder
from boxengine.domain.item import Status
from boxengine.engine.audit.by_key import KEYS_AT_ONCE
from boxengine.engine.replaying import Replays
from boxengine.ports import Copying, ItemFilter, Overtaking, Replay
from tests.integration.audit.bench import DISCARDED, FAILED, Bench
from tests.integration.audit.conftest import MakeBench

HOUR = 3600.0


@pytest.fixture(params=[True, False], ids=["index by key", "sorted on disk"])
def keyed(request: pytest.FixtureRequest) -> bool:
    """Whether the table has the index by which its rows come in order."""
    return bool(request.param)


@pytest.fixture
def make_bench(make_bench: MakeBench, keyed: bool) -> MakeBench:
    return partial(make_bench, key_index=keyed)


def test_a_table_as_a_worker_leaves_it_has_no_findings(bench: Bench) -> None:
    for number in range(40):
        bench.delivered(number % 5, ago=HOUR - number)
    for number in range(10):
        bench.pending(number)
    audit = bench.audit()
    assert list(audit.findings()) == []
    assert audit.summary.rows == 50
    assert not audit.summary.findings


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


def test_an_item_that_was_overtaken_is_an_inversion_on_whichever_pages_the_rows_are(bench: Bench) -> None:
    for number in range(5):
        bench.delivered(ago=100 - number)
    late = bench.delivered(ago=10)
    for number in range(5):
        bench.delivered(ago=50 - number)
    bench.delivered("8", ago=70)
    for page in (1, 2, 3, 100):
        assert bench.told(page=page) == [("inversion", late, "7")]


def test_the_rows_of_a_key_are_compared_however_many_keys_are_between_them(bench: Bench) -> None:
    late = {str(key): bench.delivered(key, ago=10) for key in range(KEYS_AT_ONCE + 20)}
    for key in late:
        bench.delivered(key, ago=20)
    assert sorted(bench.told(page=50)) == sorted(("inversion", item, key) for key, item in late.items())


def test_without_strict_order_a_failed_attempt_or_a_delay_excuses(make_bench: MakeBench) -> None:
    loose, strict = make_bench(), make_bench(strict_order=StrictOrder.KEY)
    excuses: list[dict[str, Any]] = [
        {"errors_count": 1},
        {"error_log": "it failed, and was made due by hand"},
        {"available_at": loose.ago(5)},
    ]
    for bench in (loose, strict):
        for excuse in excuses:
            bench.delivered(ago=1, **excuse)
        bench.delivered(ago=10)
    assert loose.told() == []
    assert [kind for kind, _, _ in strict.told()] == ["inversion"] * 3


def test_moments_are_compared_to_the_microsecond_whatever_zone_the_connection_is_in(bench: Bench) -> None:
    late = bench.delivered(ago=10)
    bench.delivered(ago=10.000_001)
    assert bench.told() == [("inversion", late, "7")]


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────


def test_gaps_are_looked_for_where_the_table_has_numbers(make_bench: MakeBench) -> None:
    bench = make_bench(sequence=True)
    ids = [bench.delivered(seq=seq, ago=100 - seq) for seq in (1, 2, 5)]
    (finding,) = bench.findings()
    assert (finding.kind, finding.item, finding.key) == ("gap", ids[2], "7")
    assert "3, 4 of its key are missing" in finding.detail


def test_a_number_whose_row_retention_may_have_deleted_is_no_gap(make_bench: MakeBench) -> None:
    bench = make_bench(sequence=True, retention=Retention(delivered=timedelta(minutes=30)))
    bench.pending("7", since=HOUR, status=FAILED, seq=1)
    bench.delivered("7", since=10, seq=9)
    bench.delivered("8", since=20, seq=1)
    young = bench.delivered("8", since=10, seq=9)
    assert bench.told() == [("gap", young, "8")]


def test_a_column_seq_of_ones_own_is_not_taken_for_numbers(bench: Bench) -> None:
    bench.execute(f"ALTER TABLE {bench.box.table} ADD COLUMN seq bigint")
    bench.delivered(seq=1, ago=9)
    bench.delivered(seq=1, ago=8)
    assert bench.told() == []


# ── twice ────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_with_one_uuid_or_one_dedup_key_are_duplicates(bench: Bench) -> None:
    shared = str(uuid4())
    bench.execute(
        f"DROP INDEX ux_{bench.box.table}_dedup"
        + ("" if bench.store.engine.dialect.name == "postgresql" else f" ON {bench.box.table}")
    )
    first = bench.delivered("7", ago=9, uuid=shared)
    second = bench.delivered("8", ago=8, uuid=shared, dedup_key="a")
    third = bench.delivered("8", ago=7, dedup_key="a")
    bench.delivered("8", ago=6, dedup_key="b")
    assert sorted(bench.told()) == [("duplicate", first, "7"), ("duplicate", second, "8")]
    details = sorted(finding.detail for finding in bench.findings())
    assert details == [
        f"dedup_key a is there 2 times, the last is item {third}",
        f"uuid {shared} is there 2 times, the last is item {second}",
    ]


def test_an_index_that_is_not_finished_vouches_for_nothing(bench: Bench) -> None:
    if bench.store.engine.dialect.name != "postgresql":
        return  # it has no concurrent creation
    bench.execute(
        "UPDATE pg_index SET indisvalid = false, indisready = false "
        f"WHERE indexrelid = to_regclass('ux_{bench.box.table}_dedup')"
    )
    first = bench.delivered("7", ago=9, dedup_key="a")
    bench.delivered("8", ago=8, dedup_key="a")
    assert bench.told() == [("duplicate", first, "7")]


# ── left behind ──────────────────────────────────────────────────────────────────────────────────────


def test_a_due_item_that_its_bucket_has_passed_is_stuck(bench: Bench) -> None:
    left = bench.pending("23", since=HOUR)
    last = bench.delivered("7", ago=60)
    assert bench.told() == [("stuck", left, "23")]
    assert f"its bucket 7 has been delivered up to item {last}" in bench.findings()[0].detail


@pytest.mark.parametrize("due_for", [0.0, 599.0])
def test_an_item_that_has_just_become_due_is_not_stuck(bench: Bench, due_for: float) -> None:
    bench.pending("23", since=HOUR, available_at=bench.ago(due_for))
    bench.delivered("7", ago=0)
    assert bench.told() == []
    if due_for:
        assert len(bench.told(stuck_after=timedelta(seconds=500))) == 1


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(hours=-1)])
def test_how_long_an_item_has_been_due_goes_by_the_clock_of_the_database(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    monkeypatch.setattr(SystemClock, "now", lambda _: datetime.now(UTC) + ahead)
    left = bench.pending("23", since=1200)
    bench.pending("23", since=300)
    bench.delivered("7", ago=60)
    assert bench.told() == [("stuck", left, "23")]


def test_a_backlog_is_not_stuck(bench: Bench) -> None:
    bench.delivered("7", ago=60)
    bench.pending("7", since=HOUR)
    assert bench.told() == []


def test_an_item_of_a_bucket_in_which_nothing_moves_is_not_stuck(bench: Bench) -> None:
    bench.pending("23", since=HOUR)
    bench.delivered("7", ago=2 * HOUR, since=3 * HOUR)
    bench.delivered("8", ago=0)
    assert bench.told() == []


def test_an_item_in_its_pause_or_parked_behind_another_is_not_stuck(make_bench: MakeBench) -> None:
    bench = make_bench(
        strict_order=StrictOrder.KEY, backoff=Backoff(minimal=timedelta(hours=2), maximal=timedelta(hours=2))
    )
    bench.pending("7", since=HOUR, errors_count=1, processed_at=bench.ago(HOUR))
    bench.pending("7", since=HOUR)
    bench.pending("23", since=HOUR, status=FAILED)
    bench.pending("23", since=HOUR)
    bench.delivered("39", ago=1)
    assert bench.told() == []


def test_a_pause_that_is_long_over_counts_from_its_end(make_bench: MakeBench) -> None:
    bench = make_bench(backoff=Backoff(minimal=timedelta(minutes=50), maximal=timedelta(hours=1)))
    left = bench.pending("23", since=2 * HOUR, errors_count=1, processed_at=bench.ago(HOUR))
    bench.delivered("7", ago=300)
    assert bench.told(stuck_after=timedelta(minutes=9)) == [("stuck", left, "23")]
    assert bench.told(stuck_after=timedelta(minutes=11)) == []


# ── orphaned ─────────────────────────────────────────────────────────────────────────────────────────


def test_an_undelivered_row_of_no_bucket_or_not_of_its_own_is_orphaned(bench: Bench) -> None:
    nowhere = bench.pending("7", bucket=16)
    astray = bench.pending("8", bucket=7)
    bench.pending("9", bucket=0, status=DISCARDED)
    assert bench.told() == [("orphaned", astray, "8"), ("orphaned", nowhere, "7")]
    assert bench.told(own_buckets=True) == [("orphaned", nowhere, "7")]


# ── what is looked at ────────────────────────────────────────────────────────────────────────────────


def test_since_leaves_older_items_alone(bench: Bench) -> None:
    bench.delivered(ago=1, since=HOUR)
    bench.delivered(ago=50, since=60)
    bench.pending("8", since=HOUR, bucket=3)
    audit = bench.audit(since=bench.ago(100))
    assert list(audit.findings()) == []
    assert audit.summary.rows == 1
    assert len(bench.told()) == 2
    assert bench.told(since=bench.ago(-60)) == []


def test_whoever_stops_asking_stops_the_audit(bench: Bench) -> None:
    for key in range(100):
        bench.pending(key, bucket=16)
    audit = bench.audit(page=10)
    findings = audit.findings()
    for _ in range(5):
        next(findings)
    assert audit.summary.rows == 10
    assert sum(audit.summary.findings.values()) == 5


def test_an_old_table_without_optional_columns_is_audited_too(bench: Bench) -> None:
    table = bench.box.table
    for column in ("event_name", "options", "error_log", "available_at", "dedup_key"):
        bench.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    late = bench.delivered(ago=1)
    bench.delivered(ago=10)
    assert bench.told() == [("inversion", late, "7")]


def test_keys_that_an_old_table_stores_as_numbers_are_paged_by_their_number(bench: Bench) -> None:
    table = bench.box.table
    bench.execute(
        f"ALTER TABLE {table} ALTER COLUMN event_key TYPE bigint USING event_key::bigint"
        if bench.store.engine.dialect.name == "postgresql"
        else f"ALTER TABLE {table} MODIFY event_key bigint NOT NULL"
    )
    late = {str(key): bench.delivered(key, ago=10) for key in (9, 80, 700)}
    for key in late:
        bench.delivered(key, ago=20)
    assert sorted(bench.told()) == sorted(("inversion", item, key) for key, item in late.items())


def test_every_page_is_a_range_of_an_index_though_nobody_has_counted_the_rows(bench: Bench) -> None:
    postgres = bench.store.engine.dialect.name == "postgresql"
    plans: list[str] = []

    class Explained(SqlAudit):
        def _ask(self, query: str, values: tuple[Any, ...], **options: Any) -> list[tuple[Any, ...]]:
            plans.append(str(super()._ask(f"EXPLAIN {query}", values, **options)))
            return super()._ask(query, values, **options)

    rows = SqlRows(bench.box)
    with bench.store.engine.begin() as connection:
        for key in ("hot", *map(str, range(100))):
            batch = {"event_key": key, "bucket": 1, "payload": b""}
            rows.insert(connection, [batch] * (4000 if key == "hot" else 40))
    explained = Explained(bench.store, page=500)
    for pages in (explained.by_key(bench.box, since=None), explained.by_id(bench.box, since=None)):
        assert sum(map(len, pages)) == 8000
    for plan in plans:
        assert "sort" not in plan.lower(), plan
        assert "Index Scan" in plan if postgres else "PRIMARY" in plan or "_key" in plan, plan


def test_keys_beyond_ascii_and_with_quotes_are_paged_like_any_other(bench: Bench) -> None:
    keys = ["a'b", "ä", "Ä", "%s", "\N{PILE OF POO}", "zz", " ", "a"]
    for key in keys:
        for number in range(3):
            bench.delivered(key, ago=100 - number)
    audit = bench.audit(own_buckets=True)
    assert list(audit.findings()) == []
    assert audit.summary.rows == 24
    late = [bench.delivered(key, ago=10) for key in keys]
    for key in keys:
        bench.delivered(key, ago=20)
    assert sorted(bench.told(own_buckets=True)) == sorted(("inversion", *each) for each in zip(late, keys, strict=True))


@pytest.mark.parametrize("how", [Copying(), Copying(same_identity=True), Overtaking(), Overtaking(same_identity=True)])
def test_a_replay_leaves_nothing_to_find(make_bench: MakeBench, how: Replay) -> None:
    bench = make_bench(strict_order=StrictOrder.KEY)
    early = bench.delivered(ago=HOUR)
    bench.delivered(ago=HOUR - 1)
    Replays(SqlItems(bench.store)).run(bench.box, ItemFilter(ids=(early,)), how)
    assert bench.told() == [], "while it waits"
    for row in bench.harness.rows(bench.box):
        if row["status"] == Status.PENDING:
            bench.harness.set_row(bench.box, row["id"], status=Status.DELIVERED, processed_at=bench.ago(0))
    assert bench.told() == [], "after its delivery"
    late = bench.delivered("8", ago=5)
    bench.delivered("8", ago=10)
    assert bench.told() == [("inversion", late, "8")], "what is not replayed is judged as ever"
