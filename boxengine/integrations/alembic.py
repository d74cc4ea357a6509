"""Alembic: migrations that make boxes' tables complete, and an empty diff once they are.

In ``env.py``, hand Alembic what ``box_options`` returns::

    import boxengine
    from boxengine.integrations.alembic import box_options

    context.configure(
        connection=connection, target_metadata=Base.metadata, **box_options(boxengine.load().resolved)
    )

``alembic revision --autogenerate`` then writes plain types and indexes for the database at hand only, and the settings that
``boxengine db create`` would make. On a table that already exists, PostgreSQL's indexes are created concurrently. Migrations
do not import boxengine: they run with every later version, and without boxengine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from alembic.autogenerate import renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations import ops
from alembic.runtime.migration import MigrationContext
from sqlalchemy import DefaultClause, Index, MetaData, Table
from sqlalchemy.types import TypeEngine

from boxengine.adapters.sql.jobs import schema as job_schema
from boxengine.adapters.sql.jobs import upgrade as job_upgrade
from boxengine.adapters.sql.log.partitions import is_partition_of
from boxengine.adapters.sql.log.readers import READERS
from boxengine.adapters.sql.log.tables import LOG, POSITIONS, names_of, with_sources
from boxengine.adapters.sql.making import schema, upgrade
from boxengine.adapters.sql.making.planning import Step
from boxengine.adapters.sql.making.sizes import without_size
from boxengine.adapters.sql.shape import columns, now
from boxengine.adapters.sql.shape.index_names import index_names
from boxengine.adapters.sql.shape.tables import counters_of
from boxengine.domain.box import Box, Storage
from boxengine.settings import Resolved

Hook = Callable[..., Any]

_POSTGRESQL = {
    columns.Id: "sa.BigInteger()",
    columns.Identity: "sa.Uuid()",
    columns.Name: "sa.String(length=255)",
    columns.Json: "postgresql.JSONB()",
    columns.Payload: "sa.LargeBinary()",
    columns.Log: "sa.Text()",
    columns.Moment: "sa.DateTime(timezone=True)",
}
_MYSQL = {
    columns.Id: "sa.BigInteger()",
    columns.Identity: "sa.CHAR(length=36)",
    columns.Name: "mysql.VARCHAR(charset='utf8mb4', collation='utf8mb4_bin', length=255)",
    columns.Json: "sa.JSON()",
    columns.Payload: "mysql.MEDIUMBLOB()",
    columns.Log: "mysql.TEXT(charset='utf8mb4')",
    columns.Moment: "mysql.DATETIME(fsp=6)",
}
_TYPES = {"postgresql": _POSTGRESQL, "mysql": _MYSQL, "mariadb": _MYSQL}


def box_options(
    resolved: Resolved,
    *,
    include_name: Hook | None = None,
    include_object: Hook | None = None,
    render_item: Hook | None = None,
    process_revision_directives: Hook | None = None,
) -> dict[str, Any]:
    """Options for Alembic's ``context.configure`` that make it understand the tables of all boxes.

    Args:
        resolved: part of a loaded configuration: ``boxengine.load().resolved``.
        include_name: your own hook, called first.
        include_object: your own hook, called first.
        render_item: your own hook, called first.
        process_revision_directives: your own hook, called last, with all directives complete.

    Returns:
        These four options, for use as keyword arguments.
    """
    tables = _BoxTables(resolved)

    def include(item: Any, name: str | None, kind: str, reflected: bool, compared: Any) -> bool:  # noqa: FBT001 - Alembic's call
        if include_object is not None and not include_object(item, name, kind, reflected, compared):
            return False
        return tables.includes(item, name, kind, only_in_database=reflected and compared is None)

    def named(name: str | None, kind: str, parents: Any) -> bool:
        if include_name is not None and not include_name(name, kind, parents):
            return False
        return tables.reads(name, kind, parents)

    def render(kind: str, item: Any, context: AutogenContext) -> Any:
        rendered = render_item(kind, item, context) if render_item is not None else False
        return rendered if rendered is not False else _rendered(kind, item, context)

    def directives(context: MigrationContext, revision: Any, scripts: list[ops.MigrationScript]) -> None:
        tables.complete(context, scripts)
        if process_revision_directives is not None:
            process_revision_directives(context, revision, scripts)

    return {
        "include_name": named,
        "include_object": include,
        "render_item": render,
        "process_revision_directives": directives,
    }


# ── how types and defaults are written ───────────────────────────────────────────────────────────────


def _rendered(kind: str, item: Any, context: AutogenContext) -> str | bool:
    dialect = context.migration_context.dialect.name
    if kind == "type" and isinstance(item, TypeEngine):
        spelled = next((text for known, text in _TYPES.get(dialect, {}).items() if known is item), None)
        if spelled is None:
            return False
        module = spelled.partition(".")[0]
        if module != "sa":
            context.imports.add(f"from sqlalchemy.dialects import {module}")
        return spelled
    if kind == "server_default" and isinstance(item, DefaultClause) and isinstance(item.arg, now.utc_now):
        return f"sa.text({str(item.arg.compile(dialect=context.migration_context.dialect))!r})"
    return False


# ── what belongs to boxes ────────────────────────────────────────────────────────────────────────────


class _BoxTables:
    """Divides the work: Alembic makes and compares the models' tables and columns; an upgrade plan adds everything else."""

    def __init__(self, resolved: Resolved) -> None:
        self._boxes: list[Box] = with_sources(pipeline.box for pipeline in resolved.pipelines.values())
        self._models = [pipeline.model for pipeline in resolved.pipelines.values() if pipeline.model is not None]
        self._tables = {table.fullname for table in schema.tables(self._boxes, self._models)}
        self._beside = {counters_of(name) for name in self._tables} | set(_beside_side_tables(self._boxes))
        """Tables that only the plan knows: an application's metadata never has them."""
        tables = [box.table for box in self._boxes if box.storage is Storage.TABLE]
        converted = {f"{table}{ending}" for table in tables for ending in (LOG, POSITIONS)}
        logs = [f"{box.table}{LOG}" for box in self._boxes if box.storage is Storage.LOG]
        self._logs = {name for log in logs for name in (log, log.rpartition(".")[2])}
        without_model = _job_tables_without_model(resolved)
        self._ours = self._tables | self._beside | without_model | converted
        """Tables that no migration drops though the application's metadata does not have them. While a box is converted, its log
        is there, whatever the configuration says."""
        jobs = [pipeline for pipeline in resolved.jobs.values() if pipeline.model is not None]
        self._jobs = [pipeline.box for pipeline in jobs]
        self._job_models = {pipeline.box.name: pipeline.model for pipeline in jobs if pipeline.model is not None}

    def reads(self, name: str | None, kind: str, parents: Any) -> bool:
        """Whether Alembic looks at this name in the database: it warns of a log's types, which it does not know."""
        if kind != "table":
            return True
        schema_name = parents.get("schema_name")
        full = f"{schema_name}.{name}" if schema_name else str(name)
        return full not in self._beside and not any(is_partition_of(log, full) for log in self._logs)

    def includes(self, item: Any, name: str | None, kind: str, *, only_in_database: bool) -> bool:
        """Whether Alembic compares this table or index."""
        if kind == "table" and isinstance(item, Table):
            # The application's metadata does not contain the table of a box without a model.
            return not (only_in_database and self._is_ours(item))
        if (
            kind == "index"
            and isinstance(item, Index)
            and item.table is not None
            and item.table.fullname in self._tables
        ):
            return name not in index_names(item.table.name)
        return True

    def _is_ours(self, table: Table) -> bool:
        """Alembic leaves out the name of the default schema, and the configuration may have it."""
        of_any_schema = {name.rpartition(".")[2] for name in self._ours}
        return table.fullname in self._ours or (table.schema is None and table.name in of_any_schema)

    def complete(self, context: MigrationContext, scripts: Sequence[ops.MigrationScript]) -> None:
        """Adds what the database lacks and Alembic does not find by itself."""
        if context.connection is None or not scripts or not _is_autogenerated(context):
            return
        # An env.py for several databases has a pass for each; the latest operations are those of this one.
        upgrades, downgrades = scripts[0].upgrade_ops_list[-1], scripts[0].downgrade_ops_list[-1]
        self._leave_sizes(upgrades)
        self._leave_sizes(downgrades)
        alembics = _tables_of(context.opts.get("target_metadata"))
        steps = [
            step
            for step in upgrade.plan(context.connection, self._boxes, self._models)
            if step.table not in alembics or not _is_alembics(step, alembics[step.table])
        ]
        # Of job tables Alembic makes the indexes, too.
        job_settings = job_upgrade.plan_settings(context.connection, self._jobs, self._job_models)
        steps += [step for step in job_settings if step.table in alembics]
        if steps:
            upgrades.ops.append(CompleteBoxes(steps))
        undoing = [replace(step, sql=step.undo) for step in reversed(steps) if step.undo is not None]
        downgrades.ops[:0] = [CompleteBoxes(undoing)] if undoing else []

    def _leave_sizes(self, direction: ops.OpContainer) -> None:
        """Removes changes of comments that would only erase the number of buckets in force."""
        for each in list(direction.ops):
            if isinstance(each, ops.ModifyTableOps):
                each.ops[:] = [op for op in each.ops if not self._wipes_size(op)]
                if not each.ops:
                    direction.ops.remove(each)

    def _wipes_size(self, op: ops.MigrateOperation) -> bool:
        if not isinstance(op, ops.CreateTableCommentOp | ops.DropTableCommentOp):
            return False
        name = f"{op.schema}.{op.table_name}" if op.schema else op.table_name
        before, after = op.existing_comment, op.comment if isinstance(op, ops.CreateTableCommentOp) else None
        return name in self._tables and without_size(before) == without_size(after)


def _is_autogenerated(context: MigrationContext) -> bool:
    """Whether Alembic compares: with ``revision_environment`` it also comes here for a revision that somebody writes by hand."""
    revision = context.opts.get("revision_context")
    return revision is None or bool(revision.command_args["autogenerate"])


def _is_alembics(step: Step, table: Table) -> bool:
    """Whether Alembic makes this by itself, as it does for every table in the metadata: the table, its columns, and the indexes
    that the application has declared beside ours."""
    declared = {str(index.name) for index in table.indexes} - index_names(table.name)
    return step.creates_table or step.column is not None or step.index in declared


def _beside_side_tables(boxes: Sequence[Box]) -> Iterator[str]:
    """The logs, positions and lists of subscriptions, as Alembic calls them."""
    for box in boxes:
        if box.storage is Storage.LOG:
            schema_name, dot, table = box.table.rpartition(".")
            for name in (*names_of(table), table + READERS):
                yield f"{schema_name}{dot}{name}"


def _tables_of(metadata: MetaData | Sequence[MetaData] | None) -> dict[str, Table]:
    several = [metadata] if isinstance(metadata, MetaData) else metadata or ()
    return {name: table for each in several for name, table in each.tables.items()}


def _job_tables_without_model(resolved: Resolved) -> set[str]:
    """The job tables that ``db create`` makes. If a job box has a model, Alembic sees all its tables in the metadata."""
    boxes = [pipeline.box for pipeline in resolved.jobs.values() if pipeline.model is None]
    return {table.fullname for _, table in job_schema.tables(boxes, {})}


class CompleteBoxes(ops.MigrateOperation):
    """Statements for everything else that boxes' tables need, or that take it back."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """What ``alembic check`` prints."""
        return ("complete_boxes", [f"{step.table}: {step.purpose}" for step in self.steps])

    def reverse(self) -> ops.MigrateOperation:
        """Not needed: Alembic reverses operations before this one is added, and the downgrade has its own statements."""
        raise NotImplementedError


@renderers.dispatch_for(CompleteBoxes)
def _render(_context: AutogenContext, op: CompleteBoxes) -> list[str]:
    lines = []
    for step in op.steps:
        if step.concurrent:
            # Alembic indents what follows a colon, up to an empty line.
            lines += ["with op.get_context().autocommit_block():", f"op.execute({step.sql!r})", ""]
        else:
            lines.append(f"op.execute({step.sql!r})")
    return lines
