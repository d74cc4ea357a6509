"""``boxengine db create`` and ``db upgrade``: box by box, so that one that cannot be used keeps no other from its tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from boxengine.cli.arguments import OneBox
from boxengine.cli.box_by_box import BoxByBox
from boxengine.cli.context import chosen, globals_of, job_boxes, models, output, say
from boxengine.domain.words import plural

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from boxengine.adapters.sql.making.planning import Step
    from boxengine.app.boxes import Boxes
    from boxengine.domain.box import Box
    from boxengine.domain.jobs import JobBox


def create(context: typer.Context, box: OneBox = None) -> None:
    """Create missing tables and indexes. A second run changes nothing.

    If a box fails, it goes on with the others, and exits with 1 at the end.
    """
    from boxengine.app.servers.database import PATIENCE, connect_store  # noqa: PLC0415 - see Globals.boxes

    boxes = globals_of(context).boxes()
    store = connect_store(boxes.resolved.settings, lock_limit=PATIENCE, patient=True)
    try:
        each, made = BoxByBox(store), list[str]()
        parts = _parts(boxes, box)
        for part in parts:
            made += each.at(part.name, partial(_create, store.engine, part)) or []
    finally:
        store.close()
    for part in parts:
        if part.name not in each.failed:
            for name, table in part.tables:
                output().print(f"{name}: table {table} {'made' if table in made else 'is there'}")
    each.end()


def _create(engine: Engine, part: _Part) -> list[str]:
    from boxengine.adapters.sql.connecting.errors import translated  # noqa: PLC0415 - see Globals.boxes
    from boxengine.adapters.sql.jobs import schema as job_schema  # noqa: PLC0415
    from boxengine.adapters.sql.jobs import upgrade as job_upgrading  # noqa: PLC0415
    from boxengine.adapters.sql.making import schema, sizes  # noqa: PLC0415
    from boxengine.adapters.sql.making import upgrade as upgrading  # noqa: PLC0415

    with translated(engine), engine.connect() as connection:
        indexes = upgrading.plan_indexes(connection, part.boxes, part.models)
        indexes += job_upgrading.plan_indexes(connection, part.jobs, part.job_models)
    for _ in upgrading.apply(engine, indexes, tell=say):
        pass  # of tables in use: what follows makes indexes under a lock that writers wait for
    made = schema.create(engine, part.boxes, part.models)
    made += job_schema.create(engine, part.jobs, part.job_models)
    sizes.record(engine, part.boxes)
    return made


def upgrade(
    context: typer.Context,
    box: OneBox = None,
    as_sql: Annotated[bool, typer.Option("--sql", help="Print the statements, and change nothing.")] = False,  # noqa: FBT002 - typer's way
) -> None:
    """Upgrade tables that an earlier version created to what this version needs, without locking writers out.

    Each step is one statement and stays done. If a run was broken off, the next run goes on where it stopped. On
    PostgreSQL, indexes are created concurrently, once older transactions have ended. No other step waits more than 5 s for
    a lock. If a box fails, it goes on with the others, and exits with 1 at the end.
    """
    from boxengine.adapters.sql.log.tables import with_sources  # noqa: PLC0415 - see Globals.boxes
    from boxengine.app.servers.database import PATIENCE, connect_store  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    store = connect_store(boxes.resolved.settings, lock_limit=PATIENCE, patient=True)
    try:
        each, recorded, parts = BoxByBox(store), list[str](), _parts(boxes, box)
        if as_sql:
            for part in parts:
                each.at(part.name, partial(_show, store.engine, part))
            each.end()
            return
        plans = [each.at(part.name, partial(_plan, store.engine, part)) or [] for part in parts]
        numbers, total = count(1), sum(map(len, plans))
        for part, steps in zip(parts, plans, strict=True):
            take = partial(_upgrade, store.engine, part, steps, tell=lambda: f"{next(numbers)}/{total}")
            recorded += each.at(part.name, take) or []
    finally:
        store.close()
    known = {of.name: of for part in parts for of in with_sources(part.boxes)}
    for name in recorded:
        say(f"{name}: bucket_size {known[name].bucket_size} recorded")
    each.end()
    if not total and not recorded:
        output().print(f"{plural(sum(len(part.tables) for part in parts), 'box')}, nothing to do")


def _plan(engine: Engine, part: _Part) -> list[Step]:
    from boxengine.adapters.sql.connecting.errors import translated  # noqa: PLC0415 - see Globals.boxes
    from boxengine.adapters.sql.jobs import upgrade as job_upgrading  # noqa: PLC0415
    from boxengine.adapters.sql.making import upgrade as upgrading  # noqa: PLC0415

    with translated(engine), engine.connect() as connection:
        steps = upgrading.plan(connection, part.boxes, part.models)
        return steps + job_upgrading.plan(connection, part.jobs, part.job_models)


def _show(engine: Engine, part: _Part) -> None:
    from boxengine.adapters.sql.connecting.errors import translated  # noqa: PLC0415 - see Globals.boxes
    from boxengine.adapters.sql.making import sizes  # noqa: PLC0415

    steps = _plan(engine, part)
    with translated(engine), engine.connect() as connection:
        unrecorded = list(sizes.statements(connection, part.boxes))
    for step in steps:
        output().print(f"-- {step.table}: {step.purpose}\n{step.sql};", markup=False)
    for table, statement in unrecorded:
        output().print(f"-- {table}: record bucket_size\n{statement};", markup=False)


def _upgrade(engine: Engine, part: _Part, steps: list[Step], *, tell: Callable[[], str]) -> list[str]:
    """Returns the names of boxes whose bucket_size it has recorded.

    Args:
        tell: the number of the next step.
    """
    from boxengine.adapters.sql.making import sizes  # noqa: PLC0415 - see Globals.boxes
    from boxengine.adapters.sql.making import upgrade as upgrading  # noqa: PLC0415

    for step in upgrading.apply(engine, steps, tell=say):
        output().print(f"{tell()} {step.table}: {step.purpose}", markup=False)
    return sizes.record(engine, part.boxes)


class _Part(NamedTuple):
    """What is made together: a box, with the subscriptions of its log; or a box of long jobs."""

    name: str
    boxes: list[Box]
    models: list[type]
    jobs: list[JobBox]
    job_models: dict[str, type]

    @property
    def tables(self) -> list[tuple[str, str]]:
        """Each box's name and table."""
        return [(each.name, each.table) for each in self.boxes] + [(each.name, each.table) for each in self.jobs]


def _parts(boxes: Boxes, name: str | None) -> list[_Part]:
    """The chosen boxes."""
    readers: dict[str, list[Box]] = {}
    for each in chosen(boxes, name):
        readers.setdefault(each.source.name, []).append(each)
    parts = [_Part(source, of, models(boxes, of), [], {}) for source, of in readers.items()]
    jobs, job_models = job_boxes(boxes, name)
    return [*parts, *(_Part(each.name, [], [], [each], job_models) for each in jobs)]
