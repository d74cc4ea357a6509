"""A mistake is told in one line, once: the thing, the cause, and what to do."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import boxengine
from boxengine import BatchAttributes, ItemAttributes
from boxengine.app.boxes import Boxes
from boxengine.errors import InvalidItem
from tests import prepared
from tests.cli.project import Project
from tests.eventually import eventually

BOX = "order_outbox_item"
CLOSED_PORT = "127.0.0.1:1"


def troubles(lines: list[dict[str, Any]]) -> list[str]:
    return [line["message"] for line in lines if line["level"] in ("warning", "error")]


def test_a_missing_table_is_told_once_by_the_worker_and_works_once_it_is_made(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    with project.worker() as worker:
        eventually(lambda: troubles(worker.lines()))
        project.call("db", "create")
        project.fill(1)
        eventually(lambda: project.counts() == {2: 1})
        assert worker.stop() == 0
        [told] = troubles(worker.lines())
        assert told.endswith(
            "box order_outbox_item: there is no table 'order_outbox_items'; make it with: boxengine db create"
        )
        assert "Traceback" not in worker.log.read_text()


@pytest.mark.parametrize(
    ("command", "option"),
    [(["start", "--config", "x.yml"], "--config"), (["items", "list", BOX, "--debug"], "--debug")],
)
def test_an_option_for_all_commands_that_stands_behind_one_is_refused_with_its_place(
    tmp_path: Path, command: list[str], option: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "boxengine", *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    said = " ".join(done.stderr.replace("│", " ").split())
    assert f"{option} stands before the command, as in: python -m boxengine {option} ... {command[0]}" in said


@pytest.mark.parametrize(
    "command", [["status"], ["items", "list", BOX], ["create", BOX, "--event-key", "1", "--payload", "x"]]
)
def test_a_missing_table_is_one_line_of_a_command(
    tmp_path: Path, postgres_url: str, redis_url: str, command: list[str]
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.call(*command, expect=1)
    assert project.errors == (
        "boxengine: box order_outbox_item: there is no table 'order_outbox_items'; make it with: boxengine db create\n"
    )


@pytest.mark.parametrize("command", ["create", "check", "upgrade", "upgrade --sql"])
def test_an_outage_of_the_database_is_one_line_of_a_command_for_tables(tmp_path: Path, command: str) -> None:
    database = f"postgresql+psycopg://postgres@{CLOSED_PORT}/shop"
    project = Project(tmp_path, database=database, redis=f"redis://{CLOSED_PORT}/0")
    project.call("db", *command.split(), expect=1)
    [line] = project.errors.splitlines()
    assert line.startswith("boxengine: the database: ")
    assert line.endswith("check database.url, and that the server runs")


def test_an_outage_of_redis_is_told_once_by_the_worker(tmp_path: Path, postgres_url: str) -> None:
    project = Project(tmp_path, database=postgres_url, redis=f"redis://{CLOSED_PORT}/0")
    project.call("db", "create")
    with project.worker() as worker:
        eventually(lambda: any("started" in line["message"] for line in worker.lines()))
        eventually(lambda: troubles(worker.lines()))
        worker.stop()
        [told] = troubles(worker.lines())
    assert "does not work; retrying with growing pauses: Redis: " in told
    assert told.endswith("Connection refused; check redis.url, and that the server runs")


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_an_outage_of_redis_is_one_line_of_a_command(tmp_path: Path, postgres_url: str, command: str) -> None:
    project = Project(tmp_path, database=postgres_url, redis=f"redis://{CLOSED_PORT}/0")
    project.call(command, BOX, expect=1)
    [line] = project.errors.splitlines()
    assert line.startswith("boxengine: Redis: ")
    assert line.endswith("check redis.url, and that the server runs")


@pytest.mark.parametrize(
    ("line", "raised"), [("{}['nope']", "KeyError: 'nope'"), ("raise SystemExit(0)", "SystemExit: 0")]
)
def test_a_constructor_that_raises_is_named_with_its_place(
    tmp_path: Path, postgres_url: str, redis_url: str, line: str, raised: str
) -> None:
    (tmp_path / "sick.py").write_text(f"class Sick:\n    def __init__(self):\n        {line}\n    __call__ = print\n")
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports="sick.Sick: {}")
    project.run("start", expect=1)
    assert project.errors == (
        "boxengine: box order_outbox_item: transport sick.Sick: its constructor raised "
        f"{raised} ({tmp_path}/sick.py:3)\n"
    )


def test_a_url_with_a_driver_that_nobody_knows_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "outbox.yml").write_text("outbox_items: {a_item: {transports: {log: {}}}}")
    environment = {**os.environ, "DATABASE_URL": "postgresql+nonsense://h/n"}
    done = prepared.run(["-m", "boxengine", "start"], cwd=tmp_path, env=environment)
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "boxengine: environment ($DATABASE_URL): database.url: the driver nonsense is not supported; expected "
        "postgresql+psycopg:// (an application may use another URL of its own)\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("pool_size=5", "psycopg has no option pool_size"),
        ("ssl_mode=require", "psycopg has no option ssl_mode; did you mean sslmode?"),
    ],
)
def test_an_option_that_the_driver_does_not_have_is_one_line_and_no_outage(
    tmp_path: Path, options: str, said: str
) -> None:
    (tmp_path / "outbox.yml").write_text("outbox_items: {a_item: {transports: {log: {}}}}")
    environment = {**os.environ, "DATABASE_URL": f"postgresql://me@127.0.0.1:1/shop?sslmode=prefer&{options}"}
    done = prepared.run(["-m", "boxengine", "start"], cwd=tmp_path, env=environment)
    assert done.returncode == 1
    assert done.stderr.decode() == f"boxengine: database.url: {said}\n"


@pytest.mark.parametrize(
    ("boxes", "command"),
    [
        ("outbox_items: {a_item: {}}", ["start"]),
        ("outbox_items: {a_item: {}}", ["items", "list", "a_item"]),
        ("job_items: {a_job: {}}", ["jobs", "list", "a_job"]),
        ("inbox_items: {an_item: {source: {kafka: {topics: [t], group: g, bootstrap_servers: h}}}}", ["consume"]),
    ],
)
def test_a_configuration_without_a_database_is_one_line_and_no_failure(
    tmp_path: Path, boxes: str, command: list[str]
) -> None:
    (tmp_path / "outbox.yml").write_text(boxes)
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = prepared.run(["-m", "boxengine", *command], cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (2, b"")
    assert re.fullmatch("boxengine: database.url is missing: .*add .*to the configuration.*\n", done.stderr.decode())


class _Unopened:
    def run_sync(self) -> None: ...


@pytest.fixture
def boxes(tmp_path: Path, postgres_url: str, redis_url: str) -> Boxes:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.call("db", "create")
    return project.boxes()


def test_a_session_of_the_wrong_kind_is_refused_with_the_right_one(boxes: Boxes, postgres_url: str) -> None:
    engine = create_engine(postgres_url)

    def refusal(session: Any) -> str:
        with pytest.raises(InvalidItem) as error:
            boxes.create_outbox_item(session, BOX, event_key=1, payload="x")
        return str(error.value)

    raw = engine.raw_connection()
    assert "not psycopg.Connection: that is the driver's own" in refusal(raw.dbapi_connection)
    raw.close()
    assert "open one: with Session(engine) as session" in refusal(engine)
    assert "open one: with Session(engine) as session" in refusal(sessionmaker(engine))
    assert "with an AsyncSession use acreate_outbox_item" in refusal(_Unopened())
    assert refusal(None) == "a SQLAlchemy Session or Connection is needed, not None"
    assert refusal("shop") == "a SQLAlchemy Session or Connection is needed, not str"
    engine.dispose()


@pytest.mark.parametrize("many", [False, True])
def test_a_session_that_is_not_asynchronous_is_refused_by_the_asynchronous_functions(boxes: Boxes, many: bool) -> None:
    item: ItemAttributes = {"event_key": 1, "payload": "x"}

    async def create() -> None:
        with Session() as session:
            if many:
                await boxes.acreate_outbox_batch(session, BOX, [cast("BatchAttributes", item)])  # type: ignore[arg-type]
            else:
                await boxes.acreate_outbox_item(session, BOX, **item)  # type: ignore[arg-type]

    with pytest.raises(
        InvalidItem,
        match=r"an AsyncSession or AsyncConnection is needed, not Session; .* leave out the a: create_outbox_item",
    ):
        asyncio.run(create())


def test_what_opens_an_asynchronous_session_is_refused_with_how_to_open_one(boxes: Boxes) -> None:
    engine = create_async_engine("postgresql+psycopg://me@localhost/shop")

    async def create(session: Any) -> None:
        await boxes.acreate_outbox_item(session, BOX, event_key=1, payload="x")

    for opens in (engine, async_sessionmaker(engine)):
        with pytest.raises(
            InvalidItem, match=r"is needed, not [Aa]sync\w+; open one: async with AsyncSession\(engine\)"
        ):
            asyncio.run(create(opens))


def test_a_scoped_session_is_a_session(boxes: Boxes, postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    session = scoped_session(sessionmaker(engine))
    assert boxes.create_outbox_item(session, BOX, event_key=1, payload="x") == 1
    session.rollback()
    assert boxes.create_outbox_item(session, BOX, event_key=1, payload="x") == 2
    session.commit()
    session.remove()
    engine.dispose()


def test_what_is_wrong_is_told_by_configure_and_not_by_the_first_request(tmp_path: Path) -> None:
    (tmp_path / "outbox.yml").write_text("outbox_items: {a_item: {model: shop.Nothing}}")
    with pytest.raises(boxengine.errors.ConfigurationError, match=r"outbox_items.a_item.model: cannot import"):
        boxengine.configure(path=tmp_path / "outbox.yml")
