"""After ``migrate``: the indexes and settings that boxes' tables need in addition to what Django makes."""

from __future__ import annotations

from typing import Any, TextIO

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db import connections
from sqlalchemy import inspect

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.making import upgrade
from boxengine.app.servers.database import PATIENCE
from boxengine.app.servers.passwords import database_password
from boxengine.domain.box import Box
from boxengine.errors import BoxError
from boxengine.integrations.django import configuration
from boxengine.integrations.django.addresses import database_url, has_driver


def after_migrate(*, using: str, verbosity: int = 1, stdout: TextIO | None = None, **options: Any) -> None:
    """Adds the indexes and settings that the boxes' tables in one database lack. Columns come from Django's migrations alone: one
    that stood there already would stop them.

    On PostgreSQL indexes are made concurrently, so that writers of a table in use are not blocked.

    Raises:
        CommandError: the database refused, or somebody has locked a table.
    """
    # ``flush`` sends the signal without a plan, after each TransactionTestCase: it changes no table. Workers do not use
    # some databases, such as SQLite in a test, or those of other applications.
    if "plan" not in options or not has_driver(using) or not configuration.models_in(using):
        return

    def tell(text: str) -> None:
        if verbosity >= 1 and stdout is not None:
            stdout.write(f"  boxengine: {text}\n")

    try:
        resolved = configuration.boxes(using).resolved
        boxes = [pipeline.box for pipeline in resolved.pipelines.values()]
        url = database_url(using)
    except ImproperlyConfigured as error:
        tell(f"cannot add indexes: {error}. Then add them with: manage.py boxengine db upgrade")
        return
    password = database_password(resolved.settings, url)
    engine = connect(url, connections=1, lock_limit=PATIENCE, patient=True, password=password)
    try:
        with translated(engine), engine.connect() as connection:
            looked_at = inspect(connection)
            wanted = [box for box in boxes if looked_at.has_table(_name(box), schema=_schema(box))]
            steps = upgrade.plan_beside_columns(connection, wanted)
        for step in upgrade.apply(engine, steps, tell=tell):
            tell(f"{step.table}: {step.purpose}")
    except BoxError as error:
        raise CommandError(f"boxengine: {error}") from error
    finally:
        engine.dispose()
    present = set(connections[using].introspection.table_names())
    for box in boxes:
        if box not in wanted and box.table in present:
            tell(f"{box.table}: no indexes added, because a worker's connection does not find this table: search_path?")


def _schema(box: Box) -> str | None:
    return box.table.rpartition(".")[0] or None


def _name(box: Box) -> str:
    return box.table.rpartition(".")[2]
