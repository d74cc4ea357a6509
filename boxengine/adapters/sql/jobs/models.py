"""The mixin for a table of jobs, its indexes, and the table of its journal."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    TextClause,
    false,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column
from sqlalchemy.schema import SchemaItem

from boxengine.adapters.sql.shape.columns import Id, Json, Log, Moment, Name
from boxengine.adapters.sql.shape.index_names import index_name
from boxengine.adapters.sql.shape.models import ModelMixin, indexes_beside
from boxengine.adapters.sql.shape.now import utc_now
from boxengine.domain.jobs import JobBox


class JobItem(ModelMixin):
    """Mixin: a long job. ``class ReportJob(JobItem, Base): __tablename__ = "report_jobs"``.

    Its journal is a second table, ``report_jobs_events``; ``report_jobs_schedules`` holds what is known of its schedules, and
    ``report_jobs_after`` which job waits for which. SQLAlchemy and Alembic see them as well.
    """

    id: Mapped[int] = mapped_column(Id, primary_key=True, autoincrement=True)
    task: Mapped[str] = mapped_column(Name)
    args: Mapped[Any] = mapped_column(Json, nullable=True)
    idempotency_key: Mapped[str | None] = mapped_column(Name)
    lock_key: Mapped[str | None] = mapped_column(Name)
    partition_key: Mapped[str] = mapped_column(Name, server_default=text("''"))
    priority: Mapped[int] = mapped_column(Integer, server_default=text("100"))
    available_at: Mapped[datetime] = mapped_column(Moment, server_default=utc_now())
    status: Mapped[str] = mapped_column(String(16), server_default=text("'queued'"))
    waits: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    """Why a queued job cannot be claimed: 0 it can, 1 it is not due, 2 another holds its ``lock_key``, 3 others come first."""
    attempt: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    max_attempts: Mapped[int] = mapped_column(Integer, server_default=text("5"))
    lease_ttl: Mapped[int] = mapped_column(Integer, server_default=text("60"))
    """Seconds."""
    token: Mapped[int] = mapped_column(Id, server_default=text("0"))
    """The fence: how often the job was claimed."""
    holds: Mapped[str | None] = mapped_column(Name)
    """The ``lock_key``, while the job runs."""
    worker: Mapped[str | None] = mapped_column(Name)
    """The worker that claimed it last."""
    lease_expires_at: Mapped[datetime | None] = mapped_column(Moment)
    heartbeat_at: Mapped[datetime | None] = mapped_column(Moment)
    cancel_requested: Mapped[bool] = mapped_column(Boolean, server_default=false())
    progress: Mapped[Any] = mapped_column(Json, nullable=True)
    checkpoint: Mapped[Any] = mapped_column(Json, nullable=True)
    checkpoints: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    """How many the attempt has made that was claimed last."""
    result: Mapped[Any] = mapped_column(Json, nullable=True)
    error: Mapped[str | None] = mapped_column(Log)
    producer: Mapped[str | None] = mapped_column(Name)
    consumer_group: Mapped[str | None] = mapped_column(Name)
    trace_context: Mapped[Any] = mapped_column(Json, nullable=True)
    """Headers that name the trace of its creation."""
    created_at: Mapped[datetime] = mapped_column(Moment, server_default=utc_now())
    started_at: Mapped[datetime | None] = mapped_column(Moment)
    """When it was claimed first."""
    finished_at: Mapped[datetime | None] = mapped_column(Moment)

    @classmethod
    def __table_cls__(cls, *arguments: Any, **options: Any) -> Table:
        """Makes the table, and that of its journal."""
        indexes = indexes_beside(arguments, options, job_indexes(arguments[0]))
        table = Table(*arguments, *indexes, **options)
        journal_table(table)
        schedule_table(table)
        after_table(table)
        return table

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:  # noqa: N805 - SQLAlchemy passes the class
        return job_indexes(cls.__tablename__)  # type: ignore[attr-defined]


def job_indexes(table: str) -> tuple[Index, ...]:
    """The indexes of a box's table besides the primary key. MySQL has no partial ones and takes them whole."""
    return (
        # Partial, so that no plan takes the wrong one, not even without statistics.
        Index(index_name("ix", table, "ready"), "status", "waits", "priority", "id", postgresql_where=_queued("= 0")),
        # By time: delayed jobs, and beside them ready ones, of which the oldest must not starve.
        Index(index_name("ix", table, "due"), "status", "waits", "available_at", postgresql_where=_queued("<= 1")),
        Index(
            index_name("ix", table, "blocked"),
            "lock_key",
            "status",
            "waits",
            "priority",
            "id",
            postgresql_where=_queued("= 2"),
        ),
        # The same by time: of those behind one key, the oldest must not starve either.
        Index(
            index_name("ix", table, "patient"),
            "lock_key",
            "status",
            "waits",
            "available_at",
            postgresql_where=_queued("= 2"),
        ),
        # Beside running jobs, the jobs that people look for afterwards: few end in one of these states.
        Index(
            index_name("ix", table, "running"),
            "status",
            "id",
            postgresql_where=text("status IN ('running', 'failed', 'canceled', 'lost')"),
        ),
        Index(
            index_name("ix", table, "finished"),
            "finished_at",
            "id",
            postgresql_where=text("finished_at IS NOT NULL"),
        ),
        Index(index_name("ux", table, "idempotency"), "idempotency_key", unique=True),
        # Not partial: only then does PostgreSQL's FOR KEY SHARE block the statement that lets go, and no heartbeat.
        Index(index_name("ux", table, "holds"), "holds", unique=True),
    )


def _queued(waits: str) -> TextClause:
    return text(f"status = 'queued' AND waits {waits}")


def journal_table(jobs: Table) -> Table:
    """The table of the journal, in the same metadata.

    Without a foreign key: each event would lock its job's row once more. Retention deletes events with their jobs.
    """
    name = f"{jobs.name}_events"
    return _beside(
        jobs,
        name,
        Column("id", Id, primary_key=True, autoincrement=True),
        Column("job_id", Id, nullable=False),
        Column("ts", Moment, nullable=False, server_default=utc_now()),
        Column("kind", String(16), nullable=False),
        Column("payload", Json),
        Index(index_name("ix", name, "job"), "job_id", "id"),
    )


def schedule_table(jobs: Table) -> Table:
    """The table of what is known of the box's schedules, in the same metadata: a row for each."""
    name = f"{jobs.name}_schedules"
    return _beside(
        jobs,
        name,
        Column("name", Name, primary_key=True),
        Column("rule", Name, nullable=False),
        Column("handled_until", Moment, nullable=False),
    )


def after_table(jobs: Table) -> Table:
    """The table of which job waits for which, in the same metadata: a row for each pair, as long as the later job is there.

    Without foreign keys, which would lock the earlier job's row against its own heartbeats.
    """
    name = f"{jobs.name}_after"
    return _beside(
        jobs,
        name,
        Column("job_id", Id, primary_key=True, autoincrement=False),
        Column("after_id", Id, primary_key=True, autoincrement=False),
        Column("waiting", SmallInteger, nullable=False),
        Column("after_failure", String(16), nullable=False),
        Index(index_name("ix", name, "waiting"), "waiting", "job_id"),
        Index(index_name("ix", name, "after"), "after_id", "waiting"),
    )


def _beside(jobs: Table, name: str, *parts: SchemaItem) -> Table:
    """The table of this name in the jobs' schema and metadata; it may have been made there before."""
    known = jobs.metadata.tables.get(f"{jobs.schema}.{name}" if jobs.schema else name)
    return Table(name, jobs.metadata, *parts, schema=jobs.schema) if known is None else known


def job_table(box: JobBox, metadata: MetaData) -> Table:
    """The table of a box for which the user wrote no class."""
    known = metadata.tables.get(box.table)
    if known is not None:
        return known

    class Base(DeclarativeBase):
        pass

    Base.metadata = metadata
    schema, _, name = box.table.rpartition(".")
    attributes: dict[str, Any] = {"__tablename__": name, "__box_name__": box.name}
    if schema:
        attributes["__table_args__"] = {"schema": schema}
    table: Table = type("Job", (JobItem, Base), attributes).__table__  # type: ignore[attr-defined]
    return table
