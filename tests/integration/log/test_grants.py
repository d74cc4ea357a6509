"""What docs/storage-log.md says an account needs on the tables of a log box: it is enough, and ``doctor`` misses any of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from boxengine.adapters.sql.checking.checkup import SqlCheckup
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import checks
from boxengine.domain.item import Status
from boxengine.errors import StoreUnavailable
from boxengine.ports import Turnover
from boxengine.ports.people.checkup import Remark
from tests.integration.log.bench import Bench
from tests.integration.log.shared import shared_log

WRITER = ("INSERT, SELECT (id) ON order_items_log", "USAGE ON SEQUENCE order_items_id_seq")
WORKER = {
    "order_items": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "order_items_log": ("SELECT", "DELETE"),
    "order_items_positions": ("SELECT", "UPDATE"),
}
GRANTS = [f"{privilege} ON {table}" for table, privileges in WORKER.items() for privilege in privileges]


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    bench = Bench(postgres_url)
    yield bench
    bench.engine.dispose()


@pytest.fixture
def partitioned(postgres_url: str) -> Iterator[Bench]:
    bench = Bench(postgres_url, log_partitions=timedelta(days=1))
    yield bench
    bench.engine.dispose()


def role_of(bench: Bench) -> str:
    return f'"log-{bench.engine.url.database}"'


@contextmanager
def account(bench: Bench, *grants: str) -> Iterator[Bench]:
    """The same tables with the eyes of an account that has only these grants."""
    role = role_of(bench)
    bench.run(f"CREATE ROLE {role} LOGIN")
    try:
        for grant in grants:
            bench.run(f"GRANT {grant} TO {role}")
        url = bench.engine.url.set(username=role.strip('"')).render_as_string(hide_password=False)
        limited = object.__new__(Bench)
        limited.box, limited.rows, limited.engine = bench.box, bench.rows, connect(url, connections=2)
        limited.store = SqlStore(limited.engine)
        try:
            yield limited
        finally:
            limited.engine.dispose()
    finally:
        bench.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def findings(bench: Bench, beginning: str) -> list[Remark]:
    remarks = SqlCheckup(bench.store, now=lambda: datetime.now(UTC)).remarks([bench.box])
    return [remark for remark in remarks if remark.text.startswith(beginning)]


def privileges_missing(bench: Bench) -> list[str]:
    return [remark.text for remark in findings(bench, "This account may not")]


def obey(bench: Bench, remark: Remark) -> None:
    """Does as its owner what the remark advises."""
    bench.run(str(remark.advice).removeprefix("As its owner: "))


def test_an_account_with_the_workers_grants_delivers_lets_step_aside_retries_and_cleans_up(bench: Bench) -> None:
    broken, fine = bench.commit(), bench.commit(key="other")
    with account(bench, *GRANTS) as worker:
        assert worker.take(fail=(broken,)) == [broken, fine]
        assert worker.side() == [(broken, Status.PENDING, 1)]
        bench.run("UPDATE order_items SET processed_at = now() - interval '1 hour'")
        assert worker.take() == [broken]
        now = datetime.now(UTC)
        span = {"created_from": now - timedelta(days=1), "created_before": now + timedelta(days=1)}
        assert worker.store.delete_finished(bench.box, [Status.DELIVERED], limit=10, **span) == 3
        assert privileges_missing(worker) == []


def test_an_account_that_does_not_own_a_log_leaves_its_partitions_to_the_owner(partitioned: Bench) -> None:
    bench, now = partitioned, datetime.now(UTC)
    with account(bench, *GRANTS) as worker:
        assert worker.store.turn_over(bench.box, created_before=now) == Turnover()
        bench.run("DROP TABLE order_items_log_p0")
        done = worker.store.turn_over(bench.box, created_before=now)
        assert done is not None
        assert "boxengine cleanup as postgres" in str(done.trouble)
        item = bench.commit()
        assert worker.take() == [item]
        (told,) = privileges_missing(worker)
        assert "make and drop partitions of order_items_log" in told


def test_a_member_of_the_owners_role_makes_partitions_for_the_owner(partitioned: Bench) -> None:
    bench = partitioned
    with account(bench, *GRANTS, "postgres") as worker:
        done = worker.store.turn_over(bench.box, created_before=datetime.now(UTC))
        assert done is not None
        assert done.made
        assert privileges_missing(worker) == []
        owners = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relname ~ '^order_items_log_p'"
        assert bench.ask(owners) == [("postgres",)]


def test_doctor_names_each_of_the_workers_grants_that_is_missing(bench: Bench) -> None:
    with account(bench, *GRANTS) as worker:
        for privilege, table in ((each, table) for table, privileges in WORKER.items() for each in privileges):
            bench.run(f"REVOKE {privilege} ON {table} FROM {role_of(bench)}")
            (remark,) = findings(worker, "This account may not")
            assert remark.text == f"This account may not {privilege} on {table}."
            obey(bench, remark)
            assert privileges_missing(worker) == []


@pytest.mark.parametrize("table", WORKER)
@pytest.mark.parametrize(
    "policies", [(), ("FOR UPDATE USING (true)",), ("USING (event_name IS NULL)", "TO {other} USING (true)")]
)
def test_doctor_names_each_table_whose_rows_row_level_security_may_hide(
    bench: Bench, table: str, policies: tuple[str, ...]
) -> None:
    if table.endswith("_positions"):
        policies = tuple(each.replace("event_name IS NULL", "bucket = 0") for each in policies)
    with account(bench, *GRANTS) as worker:
        bench.run(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        for number, policy in enumerate(policies):
            bench.run(f"CREATE POLICY p{number} ON {table} {policy.format(other='pg_monitor')}")
        (remark,) = findings(worker, "Row-level security")
        assert f" of {table} " in remark.text
        obey(bench, remark)
        assert findings(worker, "Row-level security") == []
        item = bench.commit()
        assert worker.take() == [item]


@pytest.mark.parametrize("privilege", ["UPDATE ON order_items_positions", "INSERT ON order_items"])
def test_nothing_is_sent_by_an_account_that_could_not_record_it(bench: Bench, privilege: str) -> None:
    item = bench.commit()
    with account(bench, *(grant for grant in GRANTS if grant != privilege)) as worker:
        claims = worker.store.plain_claims(worker.box)
        what, _, table = privilege.split()
        with pytest.raises(StoreUnavailable, match=f"may not {what} on {table}, so no delivery could be recorded"):
            claims.open({0: 0}, 100).__enter__()
        bench.run(f"GRANT {privilege} TO {role_of(bench)}")
        assert worker.take() == [item]


def test_a_grant_on_single_columns_is_enough_to_record_a_delivery(bench: Bench) -> None:
    item = bench.commit()
    columns = "passed, batch, place, floor, ceiling, high, turn"
    others = [grant for grant in GRANTS if grant != "UPDATE ON order_items_positions"]
    with account(bench, *others, f"UPDATE ({columns}) ON order_items_positions") as worker:
        assert worker.take() == [item]


def test_db_check_tells_that_positions_may_not_be_read(bench: Bench) -> None:
    with account(bench, *(grant for grant in GRANTS if grant != "SELECT ON order_items_positions")) as worker:
        (finding,) = checks.check(worker.engine, [bench.box])
    assert finding.severity == "error"
    assert "may not SELECT on order_items_positions" in finding.message
    assert "GRANT SELECT ON" in finding.remedy


def test_a_worker_goes_on_on_another_server_if_it_has_the_grants_for_that_and_else_says_who_must(bench: Bench) -> None:
    with account(bench, *GRANTS) as worker:
        item = bench.commit()
        bench.run("UPDATE order_items_positions SET server = 1")
        with pytest.raises(StoreUnavailable, match=r"lacks UPDATE .*, run boxengine db reposition order_item"):
            worker.take()
        for grant in ("UPDATE ON order_items_log", "SELECT ON SEQUENCE order_items_id_seq"):
            bench.run(f"GRANT {grant} TO {role_of(bench)}")
        assert worker.take() == [item]


def test_an_application_with_the_grants_for_writing_creates_items_and_reads_none(bench: Bench) -> None:
    with account(bench, *WRITER) as writer:
        assert writer.commit() == 1
        with pytest.raises(Exception, match="permission denied"):
            writer.ask("SELECT payload FROM order_items_log")
    assert bench.take() == [1]


def test_an_account_that_may_not_see_which_subscriptions_there_are_is_told(postgres_url: str) -> None:
    with shared_log(postgres_url) as log:
        own = ("order_items_billing", "order_items_log", "order_items_billing_positions")
        with account(log, *(f"ALL ON {table}" for table in own)) as limited:
            limited.box = log.readers["billing"]
            assert any("order_items_readers" in text for text in privileges_missing(limited))
            (finding, *_) = checks.check(limited.engine, [limited.box])
            assert "may not SELECT on public.order_items_readers" in finding.message
