"""Tables that a Ruby application made by the README of sbmt-outbox, and fills; drained by a Python worker."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import checks, upgrade
from boxengine.adapters.sql.shape.tables import OPTIONAL
from boxengine.domain.item import Status
from boxengine.domain.outcome import Failure
from boxengine.errors import InvalidItem
from boxengine.ports import ItemFilter
from tests.cli.project import Project
from tests.eventually import eventually
from tests.integration.engine.receivers import FailsFirst, Receiver
from tests.integration.engine.reference import VARIANTS, ReferenceTable
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import ON_POSTGRESQL, MakeRig
from tests.parity.harness import servers_of

RETRIES: dict[str, Any] = {"max_retries": 3, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1}
STRICT: dict[str, dict[str, Any]] = {
    "bucket": {"strict_order": True, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1},
    "key": {**RETRIES, "strict_order": "key"},
}
ADDED = {"available_at", "dedup_key"}
"""Columns that no table of the reference has."""


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def knows_locks(rig: Rig) -> bool:
    """What a store says of the rig's box after its first claim."""
    with closing(SqlStore(rig.engine)) as store, store.plain_claims(rig.box()).open({0: None}, 1):
        return store.locks_decide(rig.box())


# ── delivering ───────────────────────────────────────────────────────────────────────────────────────


def test_a_table_of_the_reference_is_drained_with_retries(make_rig: MakeRig, variant: str) -> None:
    rig, receiver = make_rig(tables=False, box=RETRIES), Receiver(FailsFirst(1, guilty=lambda item: item.id == 5))
    table = ReferenceTable(rig, variant)
    rig.carry(receiver)
    ids = table.write(*range(40))
    rig.deliver(41)
    assert sorted(set(receiver.ids)) == ids
    rows = rig.rows()
    assert {each.status for each in rows.values()} == {Status.DELIVERED}
    assert rows[5].errors_count == 1
    assert {bytes(payload) for payload in receiver.payloads} == {b"hi"}
    item = next(item for item in receiver.items if item.id == 8)
    assert (item.event_key, item.uuid, item.event_name) == ("7", str(rows[8].uuid), table.named.get("event_name"))
    assert item.created_at == table.written_at.replace(tzinfo=UTC)
    assert item.headers["Created-At"] == table.written_at.isoformat() + "Z"
    assert item.options == ({} if table.lean else {"key": "7", "headers": {"x": "y"}})


@pytest.mark.parametrize("order", STRICT)
def test_a_table_of_the_reference_is_drained_in_strict_order(make_rig: MakeRig, variant: str, order: str) -> None:
    rig = make_rig(tables=False, box=STRICT[order])
    table = ReferenceTable(rig, variant)
    receiver = Receiver(FailsFirst(2, guilty=lambda item: item.payload == b"bad"))
    rig.carry(receiver)
    (bad,) = table.write(3, payload=b"bad")
    others = table.write(3, 7, 3, 7)
    rig.deliver(7)
    assert set(rig.statuses()) == {Status.DELIVERED}
    arrived = list(dict.fromkeys(receiver.ids))
    assert [each for each in arrived if each != others[1] and each != others[3]] == [bad, others[0], others[2]]
    assert (arrived == [bad, *others]) == (order == "bucket")


def test_a_failed_row_of_a_table_of_the_reference_parks_its_key(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False, box={**STRICT["key"], "max_retries": 0})
    table = ReferenceTable(rig, variant)
    rig.carry(Receiver(lambda item: Failure("no") if item.payload == b"bad" else None))
    (bad,) = table.write(3, payload=b"bad")
    follower, other = table.write(3, 7)
    rig.deliver(2)
    assert [rig.row(each).status for each in (bad, follower, other)] == [1, 0, 2]


@ON_POSTGRESQL
def test_moments_without_a_zone_are_written_in_utc_whatever_the_servers_zone(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False)
    table = ReferenceTable(rig, variant)
    rig.carry(Receiver())
    rig.execute(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Kolkata''', current_database()); END $$"
    )
    rig.engine.dispose()
    written = rig.create(1, **table.named)
    table.write(1)
    rig.deliver(2)
    now = datetime.now(UTC)
    assert all(abs((now - row.processed_at).total_seconds()) < 600 for row in rig.rows().values())
    assert abs((now - rig.row(written[0]).created_at).total_seconds()) < 600


@ON_POSTGRESQL
@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
@pytest.mark.parametrize("added", ["with", "without"])
def test_items_of_a_table_of_the_reference_are_delayed_to_the_moment_whatever_the_servers_zone(
    make_rig: MakeRig, zone: str, added: str
) -> None:
    rig = make_rig(tables=False, box={"strict_order": "key"})
    table = ReferenceTable(rig, "full")
    set_zone = f"ALTER DATABASE %I SET timezone = ''{zone}''"
    rig.execute(f"DO $$ BEGIN EXECUTE format('{set_zone}', current_database()); END $$")
    rig.engine.dispose()
    if added == "with":  # as boxengine 0.1.0 added it
        rig.execute("ALTER TABLE order_outbox_items ADD COLUMN available_at timestamp with time zone")
    with rig.engine.connect() as connection:
        steps = upgrade.plan(connection, [rig.box()])
    list(upgrade.apply(rig.engine, steps))
    (kind,) = rig.ask(
        "SELECT data_type FROM information_schema.columns "
        "WHERE table_name = 'order_outbox_items' AND column_name = 'available_at'"
    )
    assert kind.data_type == f"timestamp {added} time zone"
    rig.carry(Receiver())
    now = datetime.now(UTC)
    later, due = now + timedelta(hours=1), now - timedelta(minutes=1)
    (waiting,) = rig.create(1, **table.named, available_at=later)
    rig.create(2, **table.named, available_at=due)
    with servers_of(rig) as connected:
        shown = connected.items.get(rig.box(), waiting)
        assert shown is not None
        assert shown.available_at == later
        oldest = connected.store.oldest_pending(rig.box())
        assert oldest is not None
        assert abs(oldest - now) < timedelta(minutes=10)
        outlook = connected.store.outlook(rig.box(), range(4))
        assert len(outlook.due) == 1
        assert outlook.next_in is not None
        assert abs(outlook.next_in - (later - now)) < timedelta(minutes=10)
    rig.deliver(1)
    assert rig.statuses() == [Status.PENDING, Status.DELIVERED]
    assert rig.row(waiting).available_at == later


def test_leases_decide_in_a_table_of_the_reference_at_which_its_own_workers_may_be(
    make_rig: MakeRig, variant: str
) -> None:
    rig = make_rig(tables=False)
    ReferenceTable(rig, variant)
    assert not knows_locks(rig)


def test_locks_decide_in_an_outbox_that_boxengine_made_once_it_has_been_looked_up(make_rig: MakeRig) -> None:
    rig = make_rig()
    with closing(SqlStore(rig.engine)) as store:
        assert not store.locks_decide(rig.box())
    assert knows_locks(rig)


def test_leases_decide_in_an_inbox_whose_table_may_be_of_the_reference(make_rig: MakeRig) -> None:
    assert not knows_locks(make_rig(inbox_items={BOX: {}}))


def test_a_poison_row_of_a_table_without_error_log_fails_like_any_other(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False)
    table = ReferenceTable(rig, variant)
    rig.carry(Receiver(lambda _item: Failure("no")))
    table.write(1)
    rig.deliver(1)
    assert (rig.row(1).status, rig.row(1).errors_count) == (Status.FAILED, 1)
    assert table.lean or "no" in rig.row(1).error_log


def test_an_overtaken_row_of_the_reference_is_discarded(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False, box={**RETRIES, "retry_strategies": ["exponential_backoff", "latest_available"]})
    table = ReferenceTable(rig, variant)
    rig.carry(Receiver(FailsFirst(1, guilty=lambda item: item.id == 1)))
    table.write(1, 1, 5)
    watcher = rig.deliver(4)
    assert (sorted(watcher.delivered), watcher.discarded) == ([2, 3], [1])
    assert table.lean or "item 2, a later one of its key, was delivered" in rig.row(1).error_log


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_library_writes_into_a_table_of_the_reference(make_rig: MakeRig, variant: str) -> None:
    rig, receiver = make_rig(tables=False), Receiver()
    table = ReferenceTable(rig, variant)
    rig.carry(receiver)
    ids = rig.create(3, **table.named) + rig.create(*range(6, 106), **table.named)
    rig.deliver(101)
    assert sorted(receiver.ids) == ids
    rows = list(rig.rows().values())
    assert [row.bucket for row in rows[:3]] == [3, 2, 3]
    assert [row.event_key for row in rows[:2]] == ([3, 6] if table.numeric else ["3", "6"])


@pytest.mark.parametrize("column", sorted(ADDED))
def test_an_attribute_for_which_there_is_no_column_is_refused(make_rig: MakeRig, variant: str, column: str) -> None:
    rig = make_rig(tables=False)
    table = ReferenceTable(rig, variant)
    value: Any = {"available_at": datetime.now(UTC), "dedup_key": "once"}[column]
    rig.create(1, **table.named)
    with pytest.raises(InvalidItem, match=column):
        rig.create(1, **table.named, **{column: value})
    assert len(rig.rows()) == 1


def test_a_key_that_is_no_number_is_refused_where_keys_are_numbers(make_rig: MakeRig) -> None:
    rig = make_rig(tables=False)
    table = ReferenceTable(rig, "event_key bigint")
    with pytest.raises(InvalidItem, match="event_key 'order-1' is no number"):
        rig.create("order-1", **table.named)
    assert rig.rows() == {}


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────


def test_people_find_the_items_of_a_key(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False)
    table = ReferenceTable(rig, variant)
    ids = table.write(7, 8, 7)
    with servers_of(rig) as connected:
        found = connected.items.page(rig.box(), ItemFilter(event_key="7"), after=0, limit=10)
        assert [row.id for row in found] == [ids[0], ids[2]]
        assert {row.event_key for row in found} == {"7"}
        assert connected.items.discard(rig.box(), ItemFilter(event_key="7"), ids) == {ids[0], ids[2]}
    assert rig.statuses() == [3, 0, 3]


def test_the_check_names_each_missing_column_and_what_is_lost_with_it(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False)
    table = ReferenceTable(rig, variant)
    findings = checks.check(rig.engine, [rig.box()])
    assert {finding.severity for finding in findings} == {"warning"}
    said = " ".join(finding.message for finding in findings)
    missing = [*ADDED, *(["event_name", "options", "error_log"] if table.lean else [])]
    assert all(f"no column {column}" in said for column in missing)
    assert said.count("no column") == len(missing)
    assert "db create" in said


def test_db_create_adds_the_indexes_that_a_table_of_the_reference_lacks(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False)
    table = ReferenceTable(rig, variant)
    rig.carry(Receiver())
    for _ in range(2):
        rig.create_tables()
    assert not any("no index" in finding.message for finding in checks.check(rig.engine, [rig.box()]))
    table.write(1)
    rig.deliver(1)
    assert rig.statuses(BOX) == [Status.DELIVERED]


def test_the_commands_say_what_a_table_lacks_and_work_without_it(
    make_rig: MakeRig, tmp_path: Path, database: str, redis_url: str
) -> None:
    table = ReferenceTable(make_rig(tables=False), "lean")
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project", database=database, redis=redis_url)
    lacking = [f"table order_outbox_items has no column {column}: {loss}" for column, loss in OPTIONAL.items()]
    checked = project.call("db", "check")
    assert all(f"warning: order_outbox_item: {each}" in checked for each in lacking)
    table.write(1)
    with project.worker() as worker:
        eventually(lambda: {line.get("message") for line in worker.lines()} >= set(lacking))
        eventually(lambda: project.counts() == {Status.DELIVERED: 1})
        assert worker.stop() == 0
