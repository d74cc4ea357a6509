"""Known secrets are put into every place that takes one, and looked for in everything that boxengine says."""

from __future__ import annotations

import io
import logging
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
import pytest
import redis
import sqlalchemy as sa
import yaml

from boxengine.adapters.builtin import BUILTIN_TRANSPORTS
from boxengine.adapters.telemetry import logs
from boxengine.app.servers import database
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from boxengine.embedded.process import free_port
from boxengine.errors import BoxError, ConfigurationError
from boxengine.settings import explain, load_and_resolve
from tests import prepared
from tests.eventually import eventually

SECRETS = {
    place: f"hunter-{place}-7x9"
    for place in ("database", "replica", "listen", "redis", "sasl", "key", "header", "cookie", "stream", "code", "env")
}
SIGNING = "aHVudGVyLXNpZ25pbmctN3g5LWh1bnRlci1zaWduaW5n"
CLOSED = "127.0.0.1:1"
PROC = Path("/proc")
TRANSPORTS = f'''
import urllib.request

class Leaky:
    """Puts a password into its errors, as many libraries do."""
    def __call__(self, item, payload):
        raise ConnectionError("cannot reach https://user:{SECRETS["code"]}@receiver/x?api_key={SECRETS["code"]}")
'''


def configuration(*, database: str, redis_url: str, **more: Any) -> dict[str, Any]:
    """Secrets wherever one may stand."""
    address = sa.make_url(database)
    return {
        "database": {
            "url": address.set(password=SECRETS["database"]).render_as_string(hide_password=False),
            "replica_url": address.set(password=SECRETS["replica"]).render_as_string(hide_password=False),
            "listen_url": address.set(password=SECRETS["listen"]).render_as_string(hide_password=False),
        },
        "redis": {"url": redis_url},
        "kafka": {
            "bootstrap_servers": CLOSED,
            "config": {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "boxengine",
                "sasl.password": SECRETS["sasl"],
                "ssl.key.password": SECRETS["key"],
            },
        },
        "outbox_items": {
            "leaky_item": {"transports": {"transports.Leaky": {}}},
            "hook_item": {
                "transports": {
                    "http": {
                        "url": f"http://{CLOSED}/hook",
                        "allow_private": True,
                        "secret": f"whsec_{SIGNING}",
                        "headers": {"Authorization": f"Bearer {SECRETS['header']}", "Cookie": f"a={SECRETS['cookie']}"},
                    }
                }
            },
            "kafka_item": {"transports": {"kafka": {"topic": "t", "delivery_timeout": 1.0}}},
            "stream_item": {
                "transports": {"redis_stream": {"url": f"redis://:{SECRETS['stream']}@{CLOSED}/0", "stream": "s"}}
            },
        },
        "probes": {"enabled": False},
        **more,
    }


def secrets_in(text: str) -> list[str]:
    """The places whose secrets the text gives away."""
    return [place for place, secret in {**SECRETS, "signing": SIGNING}.items() if secret in text]


class Folder:
    """A user's folder, in which commands run."""

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path = path
        (path / "outbox.yml").write_text(yaml.safe_dump(config))
        (path / "transports.py").write_text(TRANSPORTS)
        self.environ = {**os.environ, "COLUMNS": "250", "HIDDEN": SECRETS["env"]}

    def run(self, *arguments: str, expect: int) -> str:
        """All that a command says; its exit code checked."""
        done = prepared.run(["-m", "boxengine", *arguments], cwd=self.path, env=self.environ)
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == expect, said
        return said

    @contextmanager
    def worker(self, *arguments: str) -> Iterator[tuple[prepared.Process, Path]]:
        """``boxengine start`` and its log."""
        log = self.path / "worker.log"
        with log.open("wb") as file:
            command, out = ["-m", "boxengine", "--debug", "--log-level", "debug", "start", *arguments], file.fileno()
            process = prepared.start(command, cwd=self.path, env=self.environ, stdout=out, stderr=out)
        try:
            yield process, log
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


# ── configuration ────────────────────────────────────────────────────────────────────────────────────


def load(folder: Path, config: dict[str, Any]) -> Any:
    (folder / "outbox.yml").write_text(yaml.safe_dump(config))
    environ = {"HIDDEN": SECRETS["env"]}
    return load_and_resolve(None, env=None, environ=environ, cwd=folder, builtin_transports=BUILTIN_TRANSPORTS)


def test_config_show_masks_every_secret_in_both_its_forms(tmp_path: Path) -> None:
    config = configuration(database=f"postgresql://u@{CLOSED}/d", redis_url=f"redis://:{SECRETS['redis']}@{CLOSED}/0")
    config["owner"] = "someone"
    folder = Folder(tmp_path, config)
    for said in (folder.run("config", "show", expect=0), folder.run("config", "show", "--json", expect=0)):
        assert secrets_in(said) == []
        assert "***" in said
        assert "someone" in said


@pytest.mark.parametrize(
    "part",
    [
        {"redis": {"sentinels": ["h:1"], "master_name": "m", "password": "SECRET", "sentinel_password": "SECRET"}},
        {"database": {"url": "postgresql://u:SE/SECRET@h/d"}},
        {"kafka": {"config": {"ssl.key.pem": "SECRET", "sasl.oauthbearer.client.secret": "SECRET"}}},
        {"outbox_items": {"a_item": {"transports": {"log": {"api-key": "SECRET", "x": {"Authorization": "SECRET"}}}}}},
        {"outbox_items": {"a_item": {"transports": {"log": {"urls": ["https://u:SECRET@h", "https://SECRET@h/p"]}}}}},
        {"outbox_items": {"a_item": {"transports": {"log": {"dsn": "SECRET", "signing_key": "SECRET"}}}}},
        {"outbox_items": {"a_item": {"transports": {"log": {"conninfo": "host=h password=SECRET"}}}}},
        {"outbox_items": {"a_item": {"transports": {"log": {"token": "${HIDDEN}"}}}}},
        {
            "outbox_items": {
                "a_item": {"transports": {"http": {"url": "https://h", "cert_file": "c", "key_password": "SECRET"}}}
            }
        },
    ],
    ids=str,
)
def test_whatever_says_that_it_is_a_secret_is_not_shown(tmp_path: Path, part: dict[str, Any]) -> None:
    environ = {"HIDDEN": SECRETS["env"]}
    (tmp_path / "outbox.yml").write_text(yaml.safe_dump(part).replace("SECRET", SECRETS["code"]))
    builtins = {**BUILTIN_TRANSPORTS, "log": "tests.unit.settings.shop.Kafka"}
    try:
        said = str(
            explain(
                load_and_resolve(None, env=None, environ=environ, cwd=tmp_path, builtin_transports=builtins).settings
            )
        )
    except ConfigurationError as error:
        said = str(error)
    assert secrets_in(said) == []


@pytest.mark.parametrize(
    "mistake",
    [
        {"database": f"postgresql://u:{SECRETS['database']}@h/d"},
        {"database": {"url": f"postgres://u:{SECRETS['database']}@h/d"}},
        {"database": {"url": f"http//u:{SECRETS['database']}@h/d", "urll": f"x://u:{SECRETS['database']}@h"}},
        {"database": {"url": f"postgresql://u:a@{SECRETS['database']}@h/d"}},
        {"database": {"password": SECRETS["database"]}},
        {"redis": {"url": f"http://:{SECRETS['redis']}@h"}},
        {"redis": {"url": f"redis://:x/{SECRETS['redis']}@h"}},
        {"redis": {"url": f"redis://:{SECRETS['redis']}/x@h"}},
        {"redis": {"password": [SECRETS["redis"]], "sentinel_password": {"a": SECRETS["redis"]}}},
        {"kafka": {"config": [f"sasl.password={SECRETS['sasl']}"]}},
        {"kafka": {"sasl.password": SECRETS["sasl"]}},
        {"outbox_items": {"a_item": {"transports": {"http": {"secret": SECRETS["sasl"], "tokens": SECRETS["sasl"]}}}}},
        {"secret": SECRETS["sasl"], "outbox_items": {"a_item": {"token": SECRETS["sasl"]}}},
    ],
    ids=str,
)
def test_a_mistake_beside_a_secret_is_told_without_it(tmp_path: Path, mistake: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as told:
        load(tmp_path, mistake)
    assert secrets_in(str(told.value)) == []


def make(folder: Path, transport: str, arguments: dict[str, Any]) -> object:
    resolved = load(folder, {"outbox_items": {"a_item": {"transports": {transport: arguments}}}})
    (spec,) = resolved.pipelines["a_item"].transports
    return spec.build()


@pytest.mark.parametrize(
    ("transport", "arguments"),
    [
        ("http", {"url": f"https://u:{SECRETS['header']}@h/"}),
        ("http", {"url": f"https://u:{SECRETS['header']}/x@h/"}),
        ("http", {"url": "https://h/", "headers": {"Authorization": f"Bearer {SECRETS['header']}ä"}}),
        ("http", {"url": "https://h/", "headers": {"X-Key": [SECRETS["header"]]}}),
        ("http", {"url": "https://h/", "secret": f"whsec_{SECRETS['header']}!"}),
        ("http", {"url": f"ftp://u:{SECRETS['header']}@h/"}),
        ("http", {"url": "https://h/", "key_password": SECRETS["key"]}),
        ("http", {"url": "https://h/", "key_password": SECRETS["key"], "cert_file": "missing.pem"}),
        ("http", {"url": "https://h/", "key_password": [SECRETS["key"]], "cert_file": "missing.pem"}),
        ("redis_stream", {"url": f"redis://:x/{SECRETS['stream']}@h", "stream": "s"}),
        ("redis_stream", {"url": f"redis://:{SECRETS['stream']}/x@h", "stream": "s"}),
        ("redis_stream", {"url": f"http://:{SECRETS['stream']}@h", "stream": "s"}),
        ("kafka", {"topic": "t", "bootstrap_servers": "h:1", "config": {"sasl.pasword": SECRETS["sasl"]}}),
        ("kafka", {"topic": "t", "bootstrap_servers": "h:1", "config": {"linger.ms": SECRETS["sasl"]}}),
        (
            "kafka",
            {
                "topic": "t",
                "bootstrap_servers": "h:1",
                "config": {"security.protocol": "ssl", "ssl.key.pem": SECRETS["key"]},
            },
        ),
    ],
    ids=str,
)
def test_a_transport_that_cannot_be_made_says_why_without_its_secrets(
    tmp_path: Path, transport: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(BoxError) as told:
        make(tmp_path, transport, arguments)
    if "linger.ms" not in str(arguments):  # which no key calls a secret
        assert secrets_in(str(told.value)) == []


# ── servers that do not answer, or not to us ─────────────────────────────────────────────────────────


def test_commands_that_find_no_server_say_so_without_secrets_also_with_a_traceback(tmp_path: Path) -> None:
    folder = Folder(
        tmp_path,
        configuration(database=f"postgresql://u@{CLOSED}/d", redis_url=f"redis://:{SECRETS['redis']}@{CLOSED}/0"),
    )
    commands = (["status"], ["db", "check"], ["pause", "hook_item"], ["create", "hook_item", "--event-key", "1"])
    for command in commands:
        said = folder.run("--debug", *command, expect=1)
        # status shows what it can, and says in its table what does not answer
        assert ("Traceback" in said) == (command != ["status"])
        assert secrets_in(said) == []


@pytest.fixture
def guarded_postgres(own_postgres: EmbeddedPostgres) -> str:
    """A server that asks for passwords."""
    with psycopg.connect(own_postgres.url().replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("CREATE ROLE guarded LOGIN PASSWORD 'another'")
    hba = own_postgres.data_dir / "pg_hba.conf"
    hba.write_text("host all guarded 127.0.0.1/32 scram-sha-256\nhost all postgres 127.0.0.1/32 trust\n")
    own_postgres.send_signal(signal.SIGHUP)
    return own_postgres.url().replace("postgres@", "guarded@")


@pytest.fixture
def guarded_redis(own_redis: EmbeddedValkey) -> str:
    """A server that asks for another password than ours."""
    with redis.Redis.from_url(own_redis.url()) as client:
        client.config_set("requirepass", "another")
    return own_redis.url().replace("redis://", f"redis://:{SECRETS['redis']}@")


def test_a_wrong_password_is_called_that_and_not_shown(
    tmp_path: Path, guarded_postgres: str, guarded_redis: str
) -> None:
    config = configuration(database=guarded_postgres, redis_url=guarded_redis)
    folder = Folder(tmp_path, config)
    said = eventually_refused(folder)
    assert "password authentication failed" in said
    assert secrets_in(said) == []
    said = folder.run("--debug", "pause", "hook_item", expect=1)
    assert "invalid username-password pair" in said
    assert secrets_in(said) == []


def test_a_wrong_password_from_a_file_is_not_shown_either(
    tmp_path: Path, guarded_postgres: str, guarded_redis: str
) -> None:
    config = configuration(database=guarded_postgres, redis_url=guarded_redis.replace(f":{SECRETS['redis']}@", ""))
    for section in ("database", "redis"):
        (tmp_path / section).write_text(SECRETS[section])
        config[section]["password_file"] = section
    config["database"]["url"] = guarded_postgres
    folder = Folder(tmp_path, config)
    said = eventually_refused(folder)
    assert "password authentication failed" in said
    said += folder.run("--debug", "pause", "hook_item", expect=1)
    assert "invalid username-password pair" in said
    shown = folder.run("config", "show", expect=0)
    assert shown.count("password_file") == 2
    assert secrets_in(said + shown) == []


def eventually_refused(folder: Folder) -> str:
    """What a command says once the server has read its rules anew."""

    def refused() -> str:
        said = folder.run("--debug", "db", "check", expect=1)
        return said if "password authentication failed" in said else ""

    return eventually(refused)


# ── log lines of the user's own code ─────────────────────────────────────────────────────────────────


class Address:
    """Says all that it knows, as the URL classes of some libraries do."""

    def __str__(self) -> str:
        return f"https://user:{SECRETS['code']}@receiver/x"


@pytest.mark.parametrize("layout", ["json", "text"])
@pytest.mark.parametrize(
    "tag",
    [
        ConnectionError(f"cannot reach https://user:{SECRETS['code']}@receiver/x"),
        Address(),
        {"host": "receiver", "login": {"user": "u", "password": SECRETS["code"]}},
        MappingProxyType({"tokens": [SECRETS["code"]]}),
        [{"url": Address()}, (f"https://user:{SECRETS['code']}@receiver",)],
        {Address(): 1},
    ],
    ids=lambda tag: type(tag).__name__,
)
def test_tags_that_are_not_text_are_masked_too(layout: logs.Format, tag: object) -> None:
    stream = io.StringIO()
    logger, ours = logging.getLogger("boxengine.test"), logging.getLogger("boxengine")
    before = list(ours.handlers), ours.level, ours.propagate
    logs.configure(format=layout, stream=stream)
    try:
        logger.warning("look", extra={"tag": tag})
    finally:
        ours.handlers[:], ours.level, ours.propagate = before
    assert "receiver" in stream.getvalue() or "tokens" in stream.getvalue()
    assert "***" in stream.getvalue()
    assert secrets_in(stream.getvalue()) == []


# ── a worker at work ─────────────────────────────────────────────────────────────────────────────────


def test_a_worker_whose_transports_fail_gives_nothing_away(
    tmp_path: Path, postgres_url: str, own_redis: EmbeddedValkey
) -> None:
    with redis.Redis.from_url(own_redis.url()) as client:
        client.config_set("requirepass", SECRETS["redis"])
    metrics, probes = free_port(), free_port()
    config = configuration(
        database=postgres_url,
        redis_url=own_redis.url().replace("redis://", f"redis://:{SECRETS['redis']}@"),
        metrics={"enabled": True, "port": metrics},
        probes={"enabled": True, "port": probes},
        poller={"tactic": "aggressive"},
    )
    folder = Folder(tmp_path, config)
    folder.run("db", "create", expect=0)
    boxes = list(config["outbox_items"])
    with folder.worker("--processes", "2") as (process, log):
        for box in boxes:
            folder.run("create", box, "--event-key", "1", "--payload", "x", expect=0)
        eventually(lambda: "receiver/x" in error_logs(postgres_url))
        eventually(lambda: all(box in log.read_text() for box in boxes), what="a failure of each box in the log")
        pages = [read(f"http://127.0.0.1:{metrics}/metrics"), read(f"http://127.0.0.1:{probes}/readiness/outbox")]
        titles = [title(pid) for pid in (process.pid, *children(process.pid))] if PROC.is_dir() else []
    assert len(titles) == (3 if PROC.is_dir() else 0)
    for text in (log.read_text(), error_logs(postgres_url), *pages, *titles):
        assert text
        assert secrets_in(text) == []


def error_logs(url: str) -> str:
    engine = sa.create_engine(url)
    tables = ("leaky_items", "hook_items", "kafka_items", "stream_items")
    query = " UNION ALL ".join(f"SELECT error_log FROM {table}" for table in tables)
    with engine.connect() as connection:
        found = "\n".join(str(log) for log in connection.exec_driver_sql(query).scalars())
    engine.dispose()
    return found


def read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def children(pid: int) -> list[int]:
    return [int(child) for child in (PROC / f"{pid}/task/{pid}/children").read_text().split()]


def title(pid: int) -> str:
    return (PROC / f"{pid}/cmdline").read_text() + (PROC / f"{pid}/comm").read_text()


def test_errors_that_carry_a_value_are_logged_without_it(tmp_path: Path, postgres_url: str) -> None:
    settings = load(tmp_path, {"database": {"url": postgres_url}, "outbox_items": {"a_item": {}}}).settings
    store = database.connect_store(settings)
    with store.engine.connect() as connection, pytest.raises(sa.exc.DBAPIError) as told:
        connection.execute(sa.text("SELECT CAST(:value AS integer) FROM nowhere"), {"value": SECRETS["code"]})
    store.close()
    assert secrets_in(str(told.value)) == []
