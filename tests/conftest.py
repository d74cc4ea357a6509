"""Servers for the tests (CONTRACT 1): each is started at its first use, shared by the tests, and stopped at the end.

=====================  ==========================================================================================
``postgres_url``       an empty database of the test's own on the session's PostgreSQL
``redis_url``          an empty logical database; the server is this xdist worker's own unless one is given
``mysql_url``          an empty database of the test's own on the session's MariaDB
``kafka_bootstrap``    the session's Kafka (real, or a mock where there is no Java); ``real_kafka`` skips the mock
``kafka_topic``        the name of a topic of the test's own, four partitions, on ``kafka_bootstrap``
``own_postgres``       a private server that the test may kill, restart, reconfigure
``own_redis``          the same for Valkey; for FLUSHALL, CLIENT PAUSE and the like
``own_kafka``          the same for Kafka
``pgbouncer``          makes a PgBouncer of the test's own, in front of the session's PostgreSQL
=====================  ==========================================================================================
"""

from __future__ import annotations

import compileall
import gc
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import pytest
from redis import Redis

import boxengine
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.rewriting import rewrite_once
from tests.servers.databases import fresh_mysql_database, fresh_postgres_database, numbered
from tests.servers.desk import Desk, ask
from tests.servers.kafka import KafkaBroker, jar_folder, prepare
from tests.servers.memory import parent_of_data, temporary_files_in
from tests.servers.offer import How, Offer
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresFromWheel
from tests.servers.promised import ABSENT, broken_promises, promised_servers, require
from tests.servers.pymysql_contexts import share_the_default_one
from tests.servers.session import ServerSession
from tests.servers.sources import sources
from tests.servers.valkey import ValkeyFromWheel
from tests.slow import outdated_lines, slow_ones

_SESSION = pytest.StashKey[ServerSession]()
_DESK = pytest.StashKey[Desk]()
_FILES = pytest.StashKey[ExitStack]()
"""What puts temporary files into memory, in the process that starts the others."""
_PICKED = pytest.StashKey[bool]()
"""Whether the command names tests: then none of them is left out."""


class ServerLookup(Protocol):
    """Finds a server by name for a fixture; skips or fails the test if it is not available."""

    def __call__(self, name: str) -> Offer: ...


# ── the session ──────────────────────────────────────────────────────────────────────────────────────


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--only-slow", action="store_true", help="the tests of tests/slow.py, which run only if asked for")


def pytest_configure(config: pytest.Config) -> None:
    share_the_default_one()
    # pytest-xdist says 80 to its workers; without it, a command that a test starts knows a pipe from a narrow terminal.
    os.environ.pop("COLUMNS", None)
    config.stash[_FILES] = ExitStack()
    session = config.stash[_SESSION] = ServerSession(sources(os.environ))
    if hasattr(config, "workerinput"):
        config.stash[_PICKED] = config.workerinput["picked"]
        return
    config.stash[_PICKED] = config.args_source is not pytest.Config.ArgsSource.TESTPATHS or bool(config.option.keyword)
    _compile_once()
    if not config.stash[_PICKED]:
        rewrite_once()
    broken = broken_promises(session.offers(), promised_servers(os.environ))
    if broken:
        raise pytest.UsageError("\n".join(broken))
    config.stash[_DESK] = Desk(session)  # whose temporary folder, Python's for processes, is deleted later than ours
    config.stash[_FILES].enter_context(temporary_files_in(parent_of_data()))


def _compile_once() -> None:
    """Compile boxengine, but not the kits, which are copied: otherwise each process that a test starts would do it anew."""
    compileall.compile_dir(Path(boxengine.__file__).parent, quiet=2, rx=re.compile("/kits/"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker where to ask for servers, and whether the command names tests."""
    node.workerinput["server_desk"] = node.config.stash[_DESK].ticket
    node.workerinput["picked"] = node.config.stash[_PICKED]


def pytest_unconfigure(config: pytest.Config) -> None:
    if _DESK in config.stash:
        config.stash[_DESK].close()
    if _SESSION in config.stash:
        config.stash[_SESSION].close()
        config.stash[_FILES].close()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests, or all others. Refuse to run a group's tests side by side: see ``_check_groups``."""
    only_slow = config.getoption("--only-slow")
    if only_slow or not config.stash[_PICKED]:
        ids = [item.nodeid for item in items]
        if not config.stash[_PICKED] and (outdated := outdated_lines(ids)):
            # Of an error that is raised here, pytest-xdist does not tell the reason.
            problem = f"tests/slow.py: {outdated[0]} names no test"
            config.hook.pytest_collectreport(report=pytest.CollectReport("tests/slow.py", "failed", problem, []))
        slow = slow_ones(ids)
        config.hook.pytest_deselected(items=[item for item in items if (item.nodeid in slow) != only_slow])
        items[:] = [item for item in items if (item.nodeid in slow) == only_slow]
    if getattr(config.option, "loadgroup", False):
        _check_groups(items)


def _check_groups(items: list[pytest.Item]) -> None:
    """Unless pytest-xdist wrote the group into a test's id, it ignored the group, whose tests would run side by side."""
    for item in items:
        if item.get_closest_marker("xdist_group") and "@" not in item.nodeid.rpartition("::")[2]:
            raise pytest.UsageError(f"this pytest-xdist ignores the xdist_group of {item.nodeid}: see pyproject.toml")


def pytest_collection_finish() -> None:
    """Keep the garbage collector from searching imported modules and collected tests again and again: they stay."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> list[str]:
    servers = [f"server {offer}" for offer in config.stash[_SESSION].offers().values()]
    if config.stash[_PICKED] or config.getoption("--only-slow"):
        return servers
    return [*servers, "the tests of tests/slow.py are left out: make test-slow"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the servers whose absence caused skipped tests, and count those tests."""
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        if ABSENT in reason:
            reasons[reason] = reasons.get(reason, 0) + 1
    if reasons:
        terminalreporter.section("tests skipped for want of a server")
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{count} x {reason}")


@pytest.fixture(scope="session")
def server_lookup(pytestconfig: pytest.Config) -> ServerLookup:
    """The servers by name."""
    session = pytestconfig.stash[_SESSION]
    promised = promised_servers(os.environ)
    worker: dict[str, Any] = getattr(pytestconfig, "workerinput", {})

    def look_up(name: str) -> Offer:
        # Redis is the only server that each worker has for itself; tests/servers/valkey.py says why.
        shared = worker and name != "redis"
        return require(ask(worker["server_desk"], name) if shared else session.obtain(name), promised)

    return look_up


# ── what a test may not leave behind ─────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True, scope="session")
def modules_of_projects_are_compiled_anew() -> Iterator[None]:
    """Keep no bytecode of what tests write: of a module written twice within a second, Python may take the old one."""
    with patch.dict(os.environ, {"PYTHONDONTWRITEBYTECODE": "1"}):
        yield


@pytest.fixture(autouse=True)
def loggers_left_as_found() -> Iterator[None]:
    """Restore each logger's level and handlers, because commands that run in this process configure logging."""
    found = {name: _state(logger) for name, logger in _loggers().items()}
    yield
    for name, logger in _loggers().items():
        logger.level, logger.propagate, logger.disabled, handlers = found.get(name, (logging.NOTSET, True, False, ()))
        if tuple(logger.handlers) != handlers:
            logger.handlers[:] = handlers
    logging.getLogger().manager._clear_cache()  # type: ignore[attr-defined]


def _loggers() -> dict[str, logging.Logger]:
    known = logging.getLogger().manager.loggerDict
    return {"": logging.getLogger()} | {name: each for name, each in known.items() if isinstance(each, logging.Logger)}


def _state(logger: logging.Logger) -> tuple[int, bool, bool, tuple[logging.Handler, ...]]:
    return logger.level, logger.propagate, logger.disabled, tuple(logger.handlers)


# ── servers shared by the session ────────────────────────────────────────────────────────────────────


@pytest.fixture
def postgres_url(server_lookup: ServerLookup) -> Iterator[str]:
    """SQLAlchemy URL of an empty PostgreSQL database, dropped after the test."""
    with fresh_postgres_database(server_lookup("postgres").address) as url:
        yield url


@pytest.fixture
def mysql_url(server_lookup: ServerLookup) -> Iterator[str]:
    """SQLAlchemy URL of an empty MariaDB database, dropped after the test."""
    with fresh_mysql_database(server_lookup("mariadb").address) as url:
        yield url


@pytest.fixture
def redis_url(server_lookup: ServerLookup, worker_number: int) -> str:
    """URL of an empty logical Redis database."""
    offer = server_lookup("redis")
    url = numbered(offer.address, worker_number) if offer.how is How.GIVEN else offer.address
    with Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture(scope="session")
def worker_number() -> int:
    """0, 1, ...: which of xdist's workers this is; 0 without xdist."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@pytest.fixture(scope="session")
def kafka_bootstrap(server_lookup: ServerLookup) -> str:
    """Bootstrap servers of the session's Kafka. Tests share it, so each must use its own topics."""
    return server_lookup("kafka").address


@pytest.fixture(scope="session")
def real_kafka(server_lookup: ServerLookup) -> str:
    """The same, for a test that does not work with a mock."""
    offer = server_lookup("kafka")
    if offer.how is How.MOCK:
        pytest.skip(f"{ABSENT}: kafka: a mock stands in for it")
    return offer.address


@pytest.fixture
def kafka_topic(server_lookup: ServerLookup) -> str:
    """The test's own topic, with four partitions."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    name = f"t-{uuid.uuid4().hex[:16]}"
    offer = server_lookup("kafka")
    if offer.how is How.MOCK:
        return name  # the mock does not support requests for new topics; it creates a topic with four partitions at the first use
    admin = AdminClient({"bootstrap.servers": offer.address})
    admin.create_topics([NewTopic(name, num_partitions=4, replication_factor=1)])[name].result(timeout=30)
    return name


# ── servers of a test's own ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A private PostgreSQL."""
    require(PostgresFromWheel().offer(), promised_servers(os.environ))
    with EmbeddedPostgres(tmp_path / "own", durable=False) as server:
        yield server


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A private Valkey, in memory only: ``kill`` loses its data."""
    require(ValkeyFromWheel().offer(), promised_servers(os.environ))
    with EmbeddedValkey(tmp_path / "own", durable=False) as server:
        yield server


@pytest.fixture
def pgbouncer(tmp_path: Path, server_lookup: ServerLookup) -> Iterator[Callable[..., PgBouncer]]:
    """Starts PgBouncers with the options given."""
    server_url, program = server_lookup("postgres").address, server_lookup("pgbouncer").address
    with ExitStack() as stack:

        def start(**options: Any) -> PgBouncer:
            folder = tmp_path / f"pgbouncer-{uuid.uuid4().hex[:6]}"
            return stack.enter_context(PgBouncer(folder, program=program, server_url=server_url, **options))

        yield start


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A private Kafka broker."""
    missing = prepare(os.environ)
    if missing:
        require(Offer("kafka", How.ABSENT, missing), promised_servers(os.environ))
    with KafkaBroker(tmp_path / "own", jars=jar_folder(os.environ)) as broker:
        yield broker
