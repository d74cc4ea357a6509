"""The connections of long jobs, and their timing, from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from boxengine.adapters.sql.connecting.engine import connect as connect_database
from boxengine.adapters.sql.connecting.packets import refuse_long_statements
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.app.servers.passwords import database_password
from boxengine.engine.jobs.pipeline import JobPipeline
from boxengine.engine.jobs.timing import JobTiming
from boxengine.settings import Settings
from boxengine.settings.drivers import demand_url

SPARE_CONNECTIONS = 4
"""Per box: claimer, recorder, keeper, reaper."""
SILENT_AT_MOST = timedelta(hours=8)
"""How long a handler on MySQL may leave its session idle: the server's own default."""
LOCK_LIMIT = timedelta(seconds=1)
"""How long a statement of boxengine's own waits for a locked table. It leaves out rows that are locked, or says otherwise."""


def connect_jobs(settings: Settings, pipelines: Mapping[str, JobPipeline], *, threads: bool = True) -> SqlJobs:
    """The store of these boxes; no connection is made yet.

    Args:
        threads: whether jobs will run; if not, a few connections are enough.

    Raises:
        BadUsage: ``database.url`` is missing or makes no sense.
    """
    url = demand_url(settings)
    connect_to = partial(
        connect_database,
        url,
        password=database_password(settings, url),
        idle_timeout=SILENT_AT_MOST,
        prepared=settings.database.prepared_statements,
        writes=threads,
    )
    engine = connect_to(connections=SPARE_CONNECTIONS * max(1, len(pipelines)), lock_limit=LOCK_LIMIT)
    models = {name: pipeline.model for name, pipeline in pipelines.items() if pipeline.model is not None}
    running = sum(pipeline.box.concurrency for pipeline in pipelines.values()) + settings.jobs.shared_threads
    sessions = connect_to(connections=running) if threads else None
    for each in filter(None, (engine, sessions)):
        refuse_long_statements(each)
    return SqlJobs(engine, models, sessions=sessions)


def timing_of(settings: Settings) -> JobTiming:
    """The timing from the settings under ``jobs``, for the engine."""
    configured = settings.jobs
    return JobTiming(
        heartbeat=configured.heartbeat.total_seconds(),
        reaper=configured.reaper_period.total_seconds(),
        poll=configured.poll_interval.total_seconds(),
    )
