"""The database of a configuration, for commands that need nothing else: showing an item, for example, imports no Redis."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from boxengine.adapters.sql.connecting.engine import ROW_LOCK_WAIT
from boxengine.adapters.sql.connecting.engine import connect as connect_database
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.dialects.comments import Traceparent
from boxengine.app.servers.passwords import database_password
from boxengine.settings import Settings
from boxengine.settings.drivers import demand_url

SPARE_CONNECTIONS = 3
"""In addition to one per thread: retention, probes, status."""
LOCK_LIMIT = timedelta(seconds=0.25)
"""How long a look at a box waits for a locked table; meanwhile its thread cannot look at other boxes."""
PATIENCE = timedelta(seconds=ROW_LOCK_WAIT)
"""How long a person's command waits for what somebody has locked, before it says so."""


def connect_store(
    settings: Settings,
    *,
    statement_limit: timedelta | None = None,
    lock_limit: timedelta | None = None,
    writes: bool = False,
    only_looks: bool = False,
    patient: bool = False,
) -> SqlStore:
    """Connects to the database only.

    Args:
        statement_limit: after this time the database aborts a statement; None: never.
        lock_limit: see ``connect``; None: ``PATIENCE``, and no limit for what writes or is patient.
        writes: see ``connect``.
        only_looks: see ``SqlStore``.
        patient: see ``connect``.

    Raises:
        BadUsage: ``database.url`` is missing or makes no sense.
    """
    url = demand_url(settings)
    comments: Traceparent | None = None
    if settings.database.comments:
        # OpenTelemetry takes a while to import, and most commands do not need it.
        from boxengine.adapters.telemetry.opentelemetry import current_traceparent  # noqa: PLC0415

        comments = current_traceparent
    if lock_limit is None and not writes and not patient:
        lock_limit = PATIENCE
    connections = settings.processor.threads_count + settings.poller.threads_count + SPARE_CONNECTIONS
    replica = settings.database.replica_url
    idle_timeout = max(settings.processor.general_timeout, timedelta(seconds=1))
    connect_to = partial(
        connect_database,
        connections=connections,
        idle_timeout=idle_timeout,
        prepared=settings.database.prepared_statements,
        statement_limit=statement_limit,
        patient=patient,
    )
    password = database_password(settings, url)
    return SqlStore(
        connect_to(url, writes=writes, lock_limit=lock_limit, password=password),
        looks=connect_to(url, writes=writes, lock_limit=LOCK_LIMIT, password=password),
        replica=connect_to(replica, anywhere=True, lock_limit=LOCK_LIMIT, password=database_password(settings, replica))
        if replica
        else None,
        idle_timeout=idle_timeout,
        writes=writes,
        max_batch_bytes=settings.processor.max_batch_bytes,
        comments=comments,
        only_looks=only_looks,
    )
