"""The pytest plugin, found by pytest wherever boxengine is installed.

Fixtures: ``boxes`` (in memory), ``database_boxes`` (in the test's database), ``boxengine_servers`` (real servers).
Everything is imported only when it is used, so a test run without these fixtures pays nothing for the plugin.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from boxengine.settings import Resolved
    from boxengine.testing.connected import Bind, DatabaseBoxes
    from boxengine.testing.memory import MemoryBoxes


@dataclass(frozen=True, slots=True)
class TestServers:
    """Real servers that look to the test as if it alone used them."""

    __test__ = False

    database_url: str
    """SQLAlchemy URL of an empty PostgreSQL database, dropped after the test."""
    redis_url: str
    """URL of an empty Redis database."""


@dataclass(frozen=True, slots=True)
class _Started:
    """The servers of the test session."""

    postgres: Any
    valkey: Any


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one setting."""
    parser.addini(
        "boxengine_config",
        "boxengine: the configuration file of the fixtures, from the root folder; left out, found as boxengine finds it",
        default="",
    )


@pytest.fixture
def boxengine_resolved(pytestconfig: pytest.Config) -> Resolved:
    """The configuration that the other fixtures use; override it in a conftest.py to use another one."""
    import boxengine  # noqa: PLC0415 - see above

    named = pytestconfig.getini("boxengine_config")
    return boxengine.load(pytestconfig.rootpath / named if named else None).resolved


@pytest.fixture
def boxes(boxengine_resolved: Resolved) -> Iterator[MemoryBoxes]:
    """The configured boxes in memory. ``create_outbox_item`` and the other create functions write to them while the test runs."""
    from boxengine.app.boxes import default  # noqa: PLC0415 - see above
    from boxengine.testing.memory import MemoryBoxes  # noqa: PLC0415

    made = MemoryBoxes(boxengine_resolved)
    with default.standing_in(made):
        yield made
    made.close()


@pytest.fixture
def database_boxes(boxengine_resolved: Resolved) -> Iterator[Callable[[Bind], DatabaseBoxes]]:
    """Called with a session, connection or engine: the configured boxes in its database.

    From then on, ``create_outbox_item`` and the other create functions also use this configuration while the test runs.
    """
    from boxengine.app.boxes import default  # noqa: PLC0415 - see above
    from boxengine.testing.connected import DatabaseBoxes  # noqa: PLC0415

    with ExitStack() as stack:

        def make(bind: Bind) -> DatabaseBoxes:
            made = DatabaseBoxes(boxengine_resolved, bind)
            stack.callback(made.close)
            stack.enter_context(default.standing_in(made))
            return made

        yield make


@pytest.fixture(scope="session")
def boxengine_started() -> Iterator[_Started]:
    """PostgreSQL and Valkey from wheels (``pip install "boxengine[embedded]"``), started at their first use."""
    from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey  # noqa: PLC0415 - see above

    with (
        tempfile.TemporaryDirectory(prefix="boxengine-tests-") as folder,
        EmbeddedPostgres(Path(folder), durable=False) as postgres,
        EmbeddedValkey(Path(folder)) as valkey,
    ):
        yield _Started(postgres, valkey)


@pytest.fixture
def boxengine_servers(boxengine_started: _Started) -> Iterator[TestServers]:
    """A database and a Redis for this test alone, on real servers that all tests of the session share."""
    from uuid import uuid4  # noqa: PLC0415 - see above

    import psycopg  # noqa: PLC0415
    import redis  # noqa: PLC0415
    from psycopg import sql  # noqa: PLC0415

    name = f"test_{uuid4().hex}"
    url = boxengine_started.postgres.create_database(name)
    with redis.Redis.from_url(boxengine_started.valkey.url()) as client:
        client.flushdb()
    yield TestServers(database_url=url, redis_url=boxengine_started.valkey.url())
    server = {"host": "127.0.0.1", "port": boxengine_started.postgres.port, "user": "postgres", "dbname": "postgres"}
    with psycopg.connect(**server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """The differences of emitted items from the expected ones, one line each."""
    import sys  # noqa: PLC0415

    emitted = sys.modules.get("boxengine.testing.emitted")
    if emitted is None or op != "==":
        return None
    found, expected = (left, right) if isinstance(left, emitted.Emitted) else (right, left)
    if not isinstance(found, emitted.Emitted) or not isinstance(expected, list | tuple):
        return None
    return ["the items emitted are not those expected:", *found.differences(expected)]
