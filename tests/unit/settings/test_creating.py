"""A process that only creates items needs nothing that only a worker uses, and is told at once of what it does need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boxengine.app.boxes import load, load_for_worker
from boxengine.errors import ConfigurationError
from boxengine.settings import notices
from tests.unit.settings.folder import Folder

WORKERS = """
app: [json]
database: {url: "${DB}", password_from: no_such.database}
redis: {url: "${QUEUE}", password_from: no_such.redis}
error_tracker: no_such.Tracker
kafka: {bootstrap_servers: "${BROKERS}", config: {sasl.password: "${SASL}"}}
middlewares: {poll: no_such.Poll, item_process: no_such.Item}
outbox_items:
  a_item:
    retry_strategies: no_such.Strategy
    transports:
      no_such.Transport: {token: "${TOKEN}"}
      kafka: {topic: "${TOPIC}"}
inbox_items:
  b_item:
    source: {kafka: {topics: "${TOPIC}", group: "${GROUP}"}}
"""


@pytest.fixture(autouse=True)
def _in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BOXENGINE_CONFIG", "DATABASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)


def paths(error: ConfigurationError) -> set[str]:
    return {problem.path for problem in error.problems}


def test_variables_and_classes_of_the_worker_are_not_needed(folder: Folder) -> None:
    folder.write(WORKERS)
    boxes = load()
    assert boxes.box("a_item").bucket_size == 16
    with pytest.raises(ConfigurationError) as error:
        _ = boxes.resolved
    assert {"redis.url", "error_tracker", "outbox_items.a_item.transports.no_such.Transport.token"} <= paths(
        error.value
    )


def test_a_worker_needs_them(folder: Folder) -> None:
    folder.write(WORKERS)
    with pytest.raises(ConfigurationError) as error:
        load_for_worker()
    assert len(paths(error.value)) == 15


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("bucket_size: '${SIZE}'", "bucket_size"),
        ("middlewares: {create_item: '${MINE}'}", "middlewares.create_item"),
        ("middlewares: {create_item: no_such.Create}", "middlewares.create_item[0]"),
        ("outbox_items: {a_item: {partition_strategy: '${HOW}'}}", "outbox_items.a_item.partition_strategy"),
        ("outbox_items: {a_item: {model: no_such.Model}}", "outbox_items.a_item.model"),
        ("outbox_items: {a_item: {transports: {log: {}}, max_retires: 1}}", "outbox_items.a_item.max_retires"),
        ("wakeup: redis\nredis: {url: '${QUEUE}'}", "redis.url"),
        ("database: {url: mysql://h/n}\nredis: {url: '${QUEUE}'}", "redis.url"),
        ("wakeup: redis\nredis: {password_from: no_such.password}", "redis.password_from"),
    ],
)
def test_what_creating_needs_is_asked_for_at_once(folder: Folder, text: str, path: str) -> None:
    folder.write(text)
    with pytest.raises(ConfigurationError) as error:
        load()
    assert paths(error.value) == {path}


@pytest.mark.parametrize(
    ("url", "note"),
    [
        (
            "postgresql+asyncpg://h/n",
            "asyncpg is the application's driver; the worker reaches the same database by psycopg",
        ),
        (
            "postgresql+psycopg2://h/n",
            "psycopg2 is the application's driver; the worker reaches the same database by psycopg",
        ),
        (
            "mysql+aiomysql://h/n",
            "aiomysql is the application's driver; the worker reaches the same database by pymysql",
        ),
    ],
)
def test_the_url_may_name_the_application_s_driver_and_the_worker_says_that_it_uses_its_own(
    folder: Folder, url: str, note: str
) -> None:
    folder.write(f"database: {{url: '{url}'}}\noutbox_items: {{a_item: {{transports: {{log: }}}}}}")
    settings = load_for_worker().resolved.settings
    assert settings.database.url == url
    assert [str(each) for each in notices(settings)] == [f"outbox.yml: database.url: {note}"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///boxes.db", "does not work with sqlite; expected PostgreSQL"),
        ("oracle://h/n", "does not work with oracle"),
        ("sqlite+aiosqlite:///boxes.db", "does not work with sqlite; expected PostgreSQL"),
        ("postgresql+nonsense://h/n", "nonsense is not supported; expected postgresql+psycopg://"),
    ],
)
def test_a_database_that_the_worker_cannot_use_is_refused(folder: Folder, url: str, expected: str) -> None:
    folder.write(f"database: {{url: '{url}'}}")
    with pytest.raises(ConfigurationError, match=r"database.url: ") as error:
        load_for_worker()
    assert expected in str(error.value)


@pytest.mark.parametrize("url", ["postgresql://h/n", "mysql://h/n", "mariadb+pymysql://h/n", "mysql+mysqldb://h/n"])
def test_a_database_that_it_can_use_is_not(folder: Folder, url: str) -> None:
    folder.write(f"database: {{url: '{url}'}}")
    assert load_for_worker().resolved.settings.database.url == url


def test_creating_imports_no_transport(tmp_path: Path) -> None:
    (tmp_path / "outbox.yml").write_text("outbox_items: {a_item: {transports: {paid.Transport: {key: '${PAID_KEY}'}}}}")
    (tmp_path / "paid.py").write_text("import os\nos.environ['PAID_KEY']\n")
    program = "import boxengine, sys; boxengine.configure(); assert 'paid' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert (done.returncode, done.stderr) == (0, "")
