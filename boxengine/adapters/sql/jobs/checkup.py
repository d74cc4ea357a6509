"""Finds what hurts boxes of long jobs: missing tables and indexes, and jobs that nobody looks after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlalchemy import func, select, text

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.jobs import schema
from boxengine.adapters.sql.jobs.inspection import SqlJobInspector
from boxengine.adapters.sql.jobs.moments import ago
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.adapters.sql.making.planning import LOCKED, no_answer
from boxengine.adapters.sql.making.row_security import hidden_rows, may_hide
from boxengine.adapters.sql.shape.tables import quoted
from boxengine.domain.jobs import JobBox, JobState
from boxengine.domain.words import plural
from boxengine.errors import StoreConflict
from boxengine.ports.people.checkup import Remark

LONG = timedelta(minutes=1)
COUNTED_TO = 10_000
_NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE")
_FORBIDDEN_SEQUENCES = text("""
    SELECT CAST(CAST(s.oid AS regclass) AS text) FROM pg_depend AS d JOIN pg_class AS s ON s.oid = d.objid
    WHERE d.refobjid = to_regclass(:name) AND d.deptype = 'a'
    AND CASE s.relkind WHEN 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE, UPDATE') ELSE false END
""")
"""Of the columns that draw from a sequence by their default; an identity column needs no privilege."""


class SqlJobCheckup:
    """Over the tables of a ``SqlJobs``."""

    def __init__(self, jobs: SqlJobs, models: Mapping[str, type]) -> None:
        """Args:
        models: the users' classes, by box.
        """
        self._jobs = jobs
        self._models = models

    def remarks(self, boxes: Sequence[JobBox]) -> list[Remark]:
        """Everything.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        findings = schema.check(self._jobs.engine, boxes, self._models)
        found = [
            Remark(area="jobs", box=each.box, text=f"{each.box}: {each.message}.", advice=each.remedy)
            for each in findings
        ]
        broken = {each.box for each in findings if each.severity == "error"}
        for box in boxes:
            if box.name in broken:
                continue
            try:
                # What the account may not read cannot be asked for.
                found += self._denied(box) or self._of(box) or [_nothing(box)]
            except StoreConflict as error:
                told = f"{box.name}: {no_answer(box.table, error)}."
                found.append(Remark(area="jobs", box=box.name, text=told, advice=LOCKED))
        return found

    def _denied(self, box: JobBox) -> list[Remark]:
        """The worker's privileges that this account lacks, and rows that may be hidden from it."""
        if self._jobs.engine.dialect.name != "postgresql":
            return []
        found: list[Remark] = []
        with translated(self._jobs.engine), self._jobs.engine.connect() as connection:
            account = str(connection.scalar(select(func.quote_ident(func.current_user()))))
            for _, table in schema.tables([box], self._models):
                name = quoted(connection.dialect, table.schema or "", table.name)
                has = [func.has_table_privilege(func.to_regclass(name), each) for each in _NEEDED]
                missing = [
                    each for each, held in zip(_NEEDED, connection.execute(select(*has)).one(), strict=True) if not held
                ]
                if missing:
                    what = ", ".join(missing)
                    advice = f"As its owner: GRANT {what} ON {name} TO {account}"
                    told = f"This account may not {what} on {table.fullname}."
                    found.append(Remark(area="jobs", box=box.name, text=told, advice=advice))
                for sequence in connection.scalars(_FORBIDDEN_SEQUENCES, {"name": name}):
                    advice = f"As its owner: GRANT USAGE ON SEQUENCE {sequence} TO {account}"
                    told = f"This account may not draw from {sequence}."
                    found.append(Remark(area="jobs", box=box.name, text=told, advice=advice))
                if not missing and may_hide(connection, name):
                    found.append(hidden_rows(name, table.fullname, account=account, area="jobs", box=box.name))
        return found

    def _of(self, box: JobBox) -> list[Remark]:
        found, silent = [], self._silent(box)
        if silent:
            told = f"{box.name}: nobody took up {plural(silent, 'running job')} whose lease ended over a minute ago."
            found.append(
                Remark(area="jobs", box=box.name, text=told, advice="Start a worker for the box: boxengine start.")
            )
        counts = SqlJobInspector(self._jobs).counts(box, limit=COUNTED_TO)
        waited = counts.waits or timedelta(0)
        if waited > LONG and not counts.taken.number:
            told = f"{box.name}: jobs could have begun {waited.total_seconds():,.0f} s ago, and none runs."
            advice = "Start a worker for the box: boxengine start. If it is paused: boxengine resume."
            found.append(Remark(area="jobs", box=box.name, text=told, advice=advice))
        return found

    def _silent(self, box: JobBox) -> int:
        rows = self._jobs.rows(box)
        jobs = rows.jobs.c
        over = jobs.lease_expires_at < ago(LONG.total_seconds())
        with translated(self._jobs.engine), self._jobs.engine.connect() as connection:
            some = select(jobs.id).where(rows.is_in(JobState.RUNNING), over).limit(COUNTED_TO).subquery()
            return connection.scalar(select(func.count()).select_from(some)) or 0


def _nothing(box: JobBox) -> Remark:
    return Remark(area="jobs", box=box.name, text=f"{box.name}: nothing is left lying.")
