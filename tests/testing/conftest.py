"""The plugin's fixtures over the application under test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import StaticPool

import boxengine
from boxengine.settings import Resolved
from tests.testing.shop import CONFIGURATION, Base


@pytest.fixture
def boxengine_resolved(tmp_path: Path) -> Resolved:
    file = tmp_path / "outbox.yml"
    file.write_text(CONFIGURATION)
    return boxengine.load(file).resolved


@pytest.fixture
def sqlite() -> Iterator[Engine]:
    engine = create_engine("sqlite://", poolclass=StaticPool)

    # SQLite's driver begins transactions late and ends savepoints with them, unless it is told not to.
    @event.listens_for(engine, "connect")
    def _manual(connection: object, _record: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]

    @event.listens_for(engine, "begin")
    def _begin(connection: object) -> None:
        connection.exec_driver_sql("BEGIN")  # type: ignore[attr-defined]

    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Engine]:
    engine = create_engine(postgres_url)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()
