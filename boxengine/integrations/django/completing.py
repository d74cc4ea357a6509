"""After ``migrate``: the indexes and settings that boxes' tables need in addition to what Django makes."""

from __future__ import annotations

from typing import Any, TextIO

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.making import upgrade
from boxengine.integrations.django import configuration
from boxengine.integrations.django.addresses import database_url, has_driver


def after_migrate(*, using: str, verbosity: int = 1, stdout: TextIO | None = None, **_options: Any) -> None:
    """Adds what the boxes' tables in one database lack, and changes nothing else.

    On PostgreSQL indexes are made concurrently, so that writers of a table in use are not blocked.
    """
    if not has_driver(using):
        return  # a database that no worker uses, such as SQLite in a test
    present = set(connections[using].introspection.table_names())
    boxes = [pipeline.box for pipeline in configuration.boxes(using).resolved.pipelines.values()]
    wanted = [box for box in boxes if box.table in present]
    if not wanted:
        return

    def tell(text: str) -> None:
        if verbosity >= 1 and stdout is not None:
            stdout.write(f"  boxengine: {text}\n")

    try:
        url = database_url(using)
    except ImproperlyConfigured as error:
        tell(f"cannot add indexes: {error}. Then add them with: manage.py boxengine db upgrade")
        return
    engine = connect(url, connections=1, patient=True)
    try:
        with engine.connect() as connection:
            steps = upgrade.plan(connection, wanted)
        for step in upgrade.apply(engine, steps, tell=tell):
            tell(f"{step.table}: {step.purpose}")
    finally:
        engine.dispose()
