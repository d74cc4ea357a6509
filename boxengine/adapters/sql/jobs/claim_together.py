"""PostgreSQL's claim in one statement: jobs become running, and their journal says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import (
    Connection,
    FromClause,
    Integer,
    Select,
    String,
    any_,
    bindparam,
    false,
    func,
    insert,
    literal,
    literal_column,
    select,
    true,
    union_all,
    update,
)

from boxengine.adapters.sql.jobs.claims import (
    aged_candidates,
    candidates,
    columns,
    in_order,
    job_of,
    previous_start,
    taken,
)
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.domain.jobs import ClaimedJob, EventKind


class TogetherClaim:
    """Takes the next jobs that have no ``lock_key``. Jobs with one need several steps: ``claims.claim``."""

    def __init__(self, rows: JobRows) -> None:
        self._by_priority = _statement(rows, None)
        self._by_age_too = None if rows.box.aging is None else _statement(rows, rows.box.aging)

    def take(self, connection: Connection, count: int, worker: str, oldest: int = 0) -> tuple[list[ClaimedJob], bool]:
        """Up to ``count`` jobs, and whether there are more among the next ones, with a ``lock_key``."""
        given = {"most": count, "by": worker}
        if oldest and self._by_age_too is not None:
            found = connection.execute(self._by_age_too, {**given, "oldest": oldest}).all()
        else:
            found = connection.execute(self._by_priority, given).all()
        *_, keyed = found[0]
        return in_order(job_of(row, for_age=row[-2]) for row in found if row[0] is not None), bool(keyed)


def _statement(rows: JobRows, aging: timedelta | None) -> Select[Any]:
    """Args:
    aging: how long the jobs have waited of which up to ``oldest`` come first; None: none do.
    """
    worker, most = bindparam("by", type_=String()), bindparam("most", type_=Integer())
    ready = candidates(rows).limit(most).cte("ready")
    aged = None
    if aging is not None:
        aged = aged_candidates(rows, aging).limit(bindparam("oldest", type_=Integer())).cte("aged")
    free = _free(ready) if aged is None else _aged_first(aged, ready, most)
    taken_now = (
        update(rows.jobs)
        # An array, so that no plan reads the whole table for a join.
        .where(rows.jobs.c.id == func.any(func.array(free.scalar_subquery())))
        .values(taken(rows, worker))
        .returning(*columns(rows))
        .cte("claimed")
    )
    payload = func.jsonb_build_object("attempt", taken_now.c.attempt, "worker", worker)
    picked = insert(rows.journal).from_select(
        ["job_id", "kind", "payload"],
        select(taken_now.c.id, literal(str(EventKind.PICKED)), payload).order_by(taken_now.c.id),
    )
    keyed = _keyed(ready) if aged is None else _keyed(aged) + _keyed(ready)
    keys = select(keyed.label("keyed")).subquery("keys")
    is_aged = false() if aged is None else taken_now.c.id == any_(func.array(select(aged.c.id).scalar_subquery()))
    query = select(
        *taken_now.c,
        previous_start(rows, taken_now.c.id, taken_now.c.attempt),
        is_aged.label("aged"),
        keys.c.keyed,
    ).select_from(keys.outerjoin(taken_now, true()))
    return query.add_cte(picked.cte("picked"))


def _free(of: FromClause) -> Select[Any]:
    return select(of.c.id).where(of.c.lock_key.is_(None))


def _keyed(of: FromClause) -> Any:
    return select(func.count()).select_from(of).where(of.c.lock_key.is_not(None)).scalar_subquery()


def _aged_first(aged: FromClause, ready: FromClause, most: Any) -> Select[Any]:
    """Leaves room for those aged ones that have a ``lock_key``: they are claimed next."""
    both = union_all(
        _free(aged).add_columns(aged.c.priority, literal_column("0").label("rank")),
        _free(ready)
        .add_columns(ready.c.priority, literal_column("1").label("rank"))
        .where(ready.c.id.not_in(select(aged.c.id))),
    ).subquery("both")
    return select(both.c.id).order_by(both.c.rank, both.c.priority, both.c.id).limit(most - _keyed(aged))
