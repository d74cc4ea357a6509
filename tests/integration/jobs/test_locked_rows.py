"""Jobs whose rows somebody has locked: the others go on all the same, and they themselves do so afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from boxengine.adapters.sql.jobs.desk import SqlJobDesk
from boxengine.domain.jobs import Beat, Held, JobOutcome, Succeeded
from boxengine.errors import StoreConflict
from boxengine.ports.jobs import JobFilter
from tests.conformance.jobs import BOX, SqlHarness, claim, end, new


@pytest.fixture(params=["postgres_url", "mysql_url"])
def jobs(request: pytest.FixtureRequest) -> Iterator[SqlHarness]:
    harness = SqlHarness(request.getfixturevalue(request.param))
    yield harness
    harness.close()


def test_a_heartbeat_prolongs_the_leases_of_the_others_and_does_not_take_the_job_for_lost(jobs: SqlHarness) -> None:
    ids = jobs.create(new(), new(), new())
    held = [job.held for job in jobs.store.claim(BOX, 3, worker="w")]
    beats = [Beat(each, {"done": 1}) for each in held]
    before = [jobs.row(job_id)["lease_expires_at"] for job_id in ids]
    with jobs.engine.connect() as somebody:
        somebody.execute(sa.text(f"UPDATE report_jobs SET priority = 7 WHERE id = {ids[1]}"))
        assert jobs.other.beat(BOX, beats) == {ids[0]: False, ids[1]: None, ids[2]: False}
        after = [jobs.row(job_id)["lease_expires_at"] for job_id in ids]
        assert [one > other for one, other in zip(after, before, strict=True)] == [True, False, True]
        somebody.rollback()
    gone = Beat(Held(ids[2], held[2].token + 1))
    assert jobs.other.beat(BOX, [*beats[:2], gone]) == {ids[0]: False, ids[1]: False}
    assert jobs.row(ids[1])["progress"] == {"done": 1}


def test_the_ends_of_the_others_are_recorded_and_the_locked_one_once_it_is_let_go(jobs: SqlHarness) -> None:
    ids = jobs.create(new(), new(lock_key="k"), new())
    ends = [JobOutcome(job, Succeeded(result={"n": 1})) for job in jobs.store.claim(BOX, 3, worker="w")]
    held = [end.job.held for end in ends]
    with jobs.engine.connect() as somebody:
        somebody.execute(sa.text(f"UPDATE report_jobs SET priority = 7 WHERE id = {ids[1]}"))
        assert jobs.other.record(BOX, ends) == {ids[0], ids[2]}
        assert jobs.other.still_held(BOX, held) == {ids[1]}
        somebody.rollback()
    assert jobs.other.record(BOX, ends) == {ids[1]}
    assert jobs.other.still_held(BOX, held) == set()
    assert [jobs.row(job_id)["status"] for job_id in ids] == ["succeeded"] * 3


@pytest.mark.parametrize("in_session", [False, True])
def test_nobody_waits_without_a_limit_for_a_job_that_somebody_has_locked(
    jobs: SqlHarness, monkeypatch: pytest.MonkeyPatch, in_session: bool
) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.connecting.engine.ROW_LOCK_WAIT", 1)
    event.listen(jobs.engines[1], "begin", _impatient)
    job = jobs.one()
    with jobs.engine.connect() as somebody:
        somebody.execute(sa.text("UPDATE report_jobs SET priority = 7"))
        for write in (
            lambda unit: unit.end(Succeeded()),
            lambda unit: unit.checkpoint({}),
            lambda _: jobs.other.give_back(BOX, [job.held]),
            lambda _: SqlJobDesk(jobs.other).cancel(BOX, JobFilter()),  # type: ignore[arg-type] # it is one
        ):
            unit = jobs.other.unit(BOX, job)
            if in_session:
                jobs.write(unit.session, "undone")
            with pytest.raises(StoreConflict):
                write(unit)
            unit.close()
        somebody.rollback()
    assert jobs.effects() == []
    assert jobs.row(job.id)["status"] == "running"


def test_a_claim_passes_over_the_jobs_behind_a_holder_that_somebody_has_locked(
    jobs: SqlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.connecting.engine.ROW_LOCK_WAIT", 1)
    event.listen(jobs.engines[1], "begin", _impatient)
    holder = jobs.one(new(lock_key="a"))
    behind = jobs.create(*[new(lock_key="a")] * 3)
    others = jobs.create(new(lock_key="b"), new(), new(lock_key="c"))
    with jobs.engine.connect() as somebody:
        somebody.execute(sa.text(f"SELECT id FROM report_jobs WHERE id = {holder.id} FOR UPDATE"))
        first, second = (jobs.other.claim(BOX, 2, worker="w") for _ in range(2))
        assert sorted(job.id for job in [*first, *second]) == others
        somebody.rollback()
    assert claim(jobs) == [], "the key is held"
    assert end(jobs, holder, Succeeded())
    assert [job.id for job in claim(jobs)] == behind[:1]


def _impatient(connection: sa.Connection) -> None:
    if connection.dialect.name != "postgresql":
        connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")


def test_a_job_whose_row_was_locked_when_its_key_became_free_is_let_go_later(jobs: SqlHarness) -> None:
    """As by an UPDATE of all that waits. Nothing else would ever let it go: jobs are let go at the end of the key's holder."""
    first, free, held = [jobs.one(new(lock_key=key)) for key in ("a", "b", "c")]
    waiting = jobs.create(*[new(lock_key=key) for key in ("a", "b", "b", "c")])
    assert claim(jobs) == []
    with jobs.engine.begin() as somebody:
        somebody.execute(sa.text("UPDATE report_jobs SET priority = 7 WHERE status = 'queued'"))
        assert end(jobs, first, Succeeded())
        assert end(jobs, free, Succeeded())
    assert claim(jobs) == []
    jobs.store.reap(BOX)
    assert [job.id for job in claim(jobs)] == waiting[:2], "one of each free key"
    assert jobs.row(held.id)["status"] == "running"


def test_no_job_is_let_go_so_while_others_are_ready(jobs: SqlHarness) -> None:
    """The next job of a key that has just become free is one of them, and only one runs at a time."""
    first = jobs.one(new(lock_key="a"))
    _, _, other = jobs.create(*[new(lock_key="a")] * 2, new())
    assert claim(jobs, 1)[0].id == other
    assert end(jobs, first, Succeeded())
    jobs.store.reap(BOX)
    assert jobs.desk.stat(BOX).blocked == 1
