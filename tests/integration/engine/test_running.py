"""A worker inside an application: it delivers while the block runs, and nothing of it is left afterwards."""

from __future__ import annotations

import asyncio
import logging
import logging.config
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine, create_engine

import boxengine
from boxengine import errors
from boxengine.adapters.sql.making import schema
from boxengine.app.servers.connected import connect
from tests.eventually import eventually

CONFIGURATION = """
database: {{url: "{database}"}}
redis: {{url: "{redis}"}}
metrics: {{enabled: true}}
outbox_items:
  order_outbox_item: {{transports: {{tests.integration.engine.test_running.Keep: {{}}}}}}
  other_outbox_item: {{transports: {{tests.integration.engine.test_running.Keep: {{}}}}}}
"""
kept: list[tuple[str, str]] = []
closed: list[object] = []


class OrderOutboxItem(boxengine.OutboxItem): ...


class Keep:
    def __call__(self, item: boxengine.Item, payload: Any) -> None:
        kept.append((item.box_name, item.event_key))

    def close(self) -> None:
        closed.append(self)


@pytest.fixture
def boxes(tmp_path: Path, postgres_url: str, redis_url: str) -> boxengine.Boxes:
    kept.clear()
    closed.clear()
    file = tmp_path / "outbox.yml"
    file.write_text(CONFIGURATION.format(database=postgres_url, redis=redis_url))
    return boxengine.load(file)


@pytest.fixture
def engine(boxes: boxengine.Boxes, postgres_url: str) -> Iterator[Engine]:
    engine = create_engine(postgres_url)
    schema.create(engine, [pipeline.box for pipeline in boxes.resolved.pipelines.values()])
    yield engine
    engine.dispose()


def place(boxes: boxengine.Boxes, engine: Engine, box: str, key: int) -> None:
    with engine.begin() as connection:
        boxes.create_outbox_item(connection, box, event_key=key, payload=b"")


def ours() -> set[str]:
    return {
        thread.name
        for thread in threading.enumerate()
        if re.match(r"(boxengine-)?(processor|poller|listener)", thread.name)
    }


def test_a_worker_delivers_inside_the_block_and_is_gone_after_it(boxes: boxengine.Boxes, engine: Engine) -> None:
    with boxengine.running(boxes, threads=2) as worker:
        assert len([name for name in ours() if "processor" in name]) == 2
        place(boxes, engine, "order_outbox_item", 1)
        eventually(lambda: kept == [("order_outbox_item", "1")])
        eventually(lambda: worker.ready().ok and worker.alive().ok)
        assert worker.registry is not None
        assert any(metric.name.startswith("box_worker") for metric in worker.registry.collect())
    assert ours() == set()
    assert len(closed) == 2, "each box's transport"
    place(boxes, engine, "order_outbox_item", 2)
    assert kept == [("order_outbox_item", "1")]


@pytest.mark.parametrize(
    "named", [["order_outbox_item"], "order_outbox_item", OrderOutboxItem], ids=["a list", "a name", "a class"]
)
def test_only_the_boxes_that_are_named_are_worked_on(
    boxes: boxengine.Boxes, engine: Engine, named: list[type | str] | type | str
) -> None:
    place(boxes, engine, "other_outbox_item", 1)
    place(boxes, engine, "order_outbox_item", 2)
    with boxengine.running(boxes, boxes=named):
        eventually(lambda: bool(kept))
    assert kept == [("order_outbox_item", "2")]


def test_the_event_loop_goes_on_beside_a_worker(boxes: boxengine.Boxes, engine: Engine) -> None:
    async def application() -> None:
        async with boxengine.running(boxes) as worker:
            await asyncio.to_thread(place, boxes, engine, "order_outbox_item", 1)
            for _ in range(600):
                if kept:
                    break
                await asyncio.sleep(0.05)
            assert worker.alive().ok

    asyncio.run(application())
    assert kept == [("order_outbox_item", "1")]
    assert ours() == set()


def test_what_the_block_raises_comes_through_and_the_worker_stops(boxes: boxengine.Boxes, engine: Engine) -> None:
    with pytest.raises(ZeroDivisionError), boxengine.running(boxes):
        raise ZeroDivisionError
    assert ours() == set()


def test_nothing_is_left_of_a_worker_whose_start_is_cancelled(
    boxes: boxengine.Boxes, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        go_on.wait(30)
        return connect(*args, **kwargs)

    monkeypatch.setattr("boxengine.app.running.in_application.connect", slow)

    async def enter() -> None:
        async with boxengine.running(boxes):
            raise AssertionError("the block was entered")

    async def application() -> None:
        entering = asyncio.create_task(enter())
        await asyncio.to_thread(begun.wait, 30)
        entering.cancel()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await entering

    asyncio.run(application())
    assert ours() == set()
    assert len(closed) == 2, "the worker was started before it was stopped"


def test_nothing_is_left_of_a_worker_of_which_a_thread_cannot_be_started(
    boxes: boxengine.Boxes, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def starts_but_one(thread: threading.Thread) -> None:
        if thread.name == "boxengine-processor-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts_but_one)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        boxengine.running(boxes, threads=2).start()
    assert ours() == set()
    assert len(closed) == 2


@pytest.mark.parametrize("threads", [0, "2", 1.5])
def test_threads_that_are_no_number_of_threads_are_refused(boxes: boxengine.Boxes, threads: Any) -> None:
    with pytest.raises(errors.BoxError, match=f"^threads: expected a whole number from 1 up, got {threads!r}$"):
        boxengine.running(boxes, threads=threads)


def test_boxes_with_one_table_and_a_worker_without_a_box_are_refused_as_by_start(
    boxes: boxengine.Boxes, engine: Engine, tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    text = CONFIGURATION.format(database=postgres_url, redis=redis_url)
    servers, _, _boxes = text.partition("outbox_items:")
    one_table = tmp_path / "one_table.yml"
    one_table.write_text(
        f"{text}  copied_outbox_item: {{table: public.order_outbox_items, transports: {{log: {{}}}}}}\n"
    )
    no_box = tmp_path / "no_box.yml"
    no_box.write_text(servers)
    with pytest.raises(errors.ConfigurationError, match=r"public\.order_outbox_items"):
        boxengine.running(one_table).start()
    with pytest.raises(errors.ConfigurationError, match="there is no box to work on"):
        boxengine.running(no_box).start()
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'boxengine' AND datname = current_database()"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        eventually(lambda: connection.scalar(sa.text(ours)) == 0)


def test_misuse_is_told(boxes: boxengine.Boxes, engine: Engine) -> None:
    worker = boxengine.running(boxes)
    with pytest.raises(errors.BoxError, match="has not been started"):
        worker.ready()
    with worker, pytest.raises(errors.BoxError, match="has already been started"):
        worker.start()
    with pytest.raises(errors.UnknownBox, match="order_outbox_item, other_outbox_item"):
        boxengine.running(boxes, boxes=["orders"]).start()


class Refuse:
    def __call__(self, item: boxengine.Item, payload: Any) -> None:
        raise ValueError("no such address")


def test_failures_are_logged_though_the_application_has_disabled_the_loggers_that_it_found(
    boxes: boxengine.Boxes, engine: Engine, tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    """As ``logging.config`` does unless it is told otherwise: applications call it after they have imported boxengine."""
    file = tmp_path / "refusing.yml"
    file.write_text(CONFIGURATION.format(database=postgres_url, redis=redis_url).replace(".Keep:", ".Refuse:"))
    told: list[str] = []

    class Telling(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    logging.config.dictConfig({"version": 1})
    logging.getLogger("boxengine").addHandler(Telling())
    with boxengine.running(file):
        place(boxes, engine, "order_outbox_item", 1)
        eventually(lambda: any("ValueError: no such address" in line for line in told))
