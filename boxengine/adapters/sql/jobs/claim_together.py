"""PostgreSQL's claim in one statement: jobs become running, and their journal says so."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Integer, Select, String, bindparam, func, insert, literal, select, true, update

from boxengine.adapters.sql.jobs.claims import candidates, columns, jobs_of, taken
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.domain.jobs import ClaimedJob, EventKind


class TogetherClaim:
    """Takes those of the next jobs that have no ``lock_key``. The others need several steps: ``claims.claim``."""

    def __init__(self, rows: JobRows) -> None:
        self._statement = _statement(rows)

    def take(self, connection: Connection, count: int, worker: str) -> tuple[list[ClaimedJob], bool]:
        """Up to ``count`` jobs, and whether there are more among the next ones, with a ``lock_key``."""
        found = connection.execute(self._statement, {"most": count, "by": worker}).mappings().all()
        keyed = bool(found[0]["keyed"])
        return jobs_of(row for row in found if row["id"] is not None), keyed


def _statement(rows: JobRows) -> Select[Any]:
    worker = bindparam("by", type_=String())
    ready = candidates(rows).limit(bindparam("most", type_=Integer())).cte("ready")
    free = select(ready.c.id).where(ready.c.lock_key.is_(None))
    claimed = (
        update(rows.jobs)
        # An array, so that no plan reads the whole table for a join.
        .where(rows.jobs.c.id == func.any(func.array(free.scalar_subquery())))
        .values(taken(rows, worker))
        .returning(*columns(rows))
        .cte("claimed")
    )
    payload = func.jsonb_build_object("attempt", claimed.c.attempt, "worker", worker)
    picked = insert(rows.journal).from_select(
        ["job_id", "kind", "payload"],
        select(claimed.c.id, literal(str(EventKind.PICKED)), payload).order_by(claimed.c.id),
    )
    keyed = select(func.count().label("keyed")).select_from(ready).where(ready.c.lock_key.is_not(None)).subquery("keys")
    query = select(keyed.c.keyed, *claimed.c).select_from(keyed.outerjoin(claimed, true()))
    return query.add_cte(picked.cte("picked"))
