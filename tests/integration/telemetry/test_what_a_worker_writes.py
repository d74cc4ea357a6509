"""``boxengine start`` in a user's project: its log, its traces, its error tracker, and the hooks of its model."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from boxengine import Boxes
from boxengine.adapters.system import SystemClock
from boxengine.adapters.telemetry.opentelemetry import OpenTelemetryTracer
from boxengine.cli.context import Globals
from tests.cli.project import Project, Worker
from tests.eventually import eventually

SHOP = """
import json, logging
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from sqlalchemy.orm import DeclarativeBase
from boxengine import OutboxItem, create_outbox_item

logger = logging.getLogger("shop.shipping")

class ToFile(SpanExporter):
    def export(self, spans):
        with open("spans.jsonl", "a") as file:
            file.writelines(span.to_json(indent=None) + "\\n" for span in spans)
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)

class Base(DeclarativeBase):
    pass

class OrderOutboxItem(OutboxItem, Base):
    __tablename__ = "order_outbox_items"

    @staticmethod
    def extra_options(item):
        return {"headers": {"Tenant": "acme", "Kind": "usual"}, "key": item.event_key}

    @staticmethod
    def extra_log_details(item):
        return {"order": item.options["order"], "key": item.options["key"]}

class PaymentOutboxItem(OutboxItem, Base):
    __tablename__ = "payment_outbox_items"

class Ship:
    def __call__(self, item, payload, session):
        logger.info("shipping for %s", item.headers["Tenant"], extra={"kind": item.headers["Kind"]})
        if payload == b"bad":
            raise RuntimeError("no such address")
        create_outbox_item(session, PaymentOutboxItem, event_key=item.event_key, payload=b"{}")

class Pay:
    def __call__(self, item, payload):
        logger.debug("too quiet to be heard")

def track(error, **context):
    with open("errors.jsonl", "a") as file:
        file.write(json.dumps({"error": str(error), **context}) + "\\n")
"""
SILENCING = """
import logging, logging.config

# As in many applications: loggers that are there already are disabled, because nothing else is asked for.
logging.config.dictConfig({
    "version": 1,
    "formatters": {"own": {"format": "theirs: %(message)s"}},
    "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own"}},
    "root": {"level": "INFO", "handlers": ["own"]},
})

class Ship:
    def __call__(self, item, payload):
        logging.getLogger("shop").info("shipping")
        raise RuntimeError("no such address")
"""
CONFIG = """
database: {{url: "{database}"}}
redis: {{url: "{redis}"}}
probes: {{enabled: false}}
app: [shop]
error_tracker: shop.track
logging: {{format: json, level: info}}
tracing: {{item_spans: true}}
outbox_items:
  order_outbox_item: {{model: shop.OrderOutboxItem, transports: {{shop.Ship: {{}}}}}}
  payment_outbox_item: {{model: shop.PaymentOutboxItem, transports: {{shop.Pay: {{}}}}}}
"""


class Shop(Project):
    """The project above; this process writes its items without importing it."""

    def __init__(self, folder: Path, *, database: str, redis: str) -> None:
        super().__init__(
            folder, database=database, redis=redis, more="  payment_outbox_item: {transports: {log: {}}}\n"
        )
        (folder / "shop.py").write_text(SHOP)
        self.config.write_text(CONFIG.format(database=database, redis=redis))
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._boxes = Boxes(
            self.boxes().resolved, tracer=OpenTelemetryTracer(clock=SystemClock(), provider=self._provider)
        )

    def order(self, number: int, *, payload: bytes = b"{}", **headers: str) -> tuple[int, str]:
        """Creates an item in a trace of its own; its id, and the trace's."""
        with (
            self._provider.get_tracer("web").start_as_current_span("request") as request,
            self.engine() as engine,
            engine.begin() as connection,
        ):
            item_id = self._boxes.create_outbox_item(
                connection,
                "order_outbox_item",
                event_key=number,
                payload=payload,
                options={"order": number, "headers": headers},
            )
            return item_id, trace.format_trace_id(request.get_span_context().trace_id)

    def written(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def shop(tmp_path: Path, postgres_url: str, redis_url: str) -> Shop:
    shop = Shop(tmp_path, database=postgres_url, redis=redis_url)
    shop.run("db", "create")
    return shop


def of_item(worker: Worker, item_id: int) -> list[dict[str, Any]]:
    return [line for line in worker.lines() if line.get("item") == item_id]


def test_lines_spans_and_errors_of_an_item_lead_from_its_creation_to_its_transport(shop: Shop) -> None:
    good, good_trace = shop.order(7, Kind="express")
    bad, bad_trace = shop.order(8, payload=b"bad")
    with shop.worker() as worker:
        eventually(lambda: shop.counts() == {1: 1, 2: 1})
        eventually(lambda: shop.counts("payment_outbox_items") == {2: 1})
        assert worker.stop() == 0
        shipped = of_item(worker, good)[0]
        tags = {"box": "order_outbox_item", "bucket": 7, "transport": "shop.Ship", "trace_id": good_trace}
        # What the model says of its items: its own header stays, the others are added, and the line has its details.
        tags |= {"logger": "shop.shipping", "message": "shipping for acme", "kind": "express", "order": 7, "key": "7"}
        assert shipped.items() >= tags.items()
        tried, failed = of_item(worker, bad)
        assert (tried["kind"], tried["trace_id"], tried["order"]) == ("usual", bad_trace, 8)
        assert "RuntimeError: no such address" in failed["message"]
        assert failed.items() >= {"level": "warning", "box": "order_outbox_item", "bucket": 8, "order": 8}.items()
        assert not [line for line in worker.lines() if line["message"] == "too quiet to be heard"]
    (tracked,) = shop.written("errors.jsonl")
    assert tracked == {
        "error": "no such address",
        "box_name": "order_outbox_item",
        "bucket": 8,
        "item_id": bad,
        "event_key": "8",
        "where": "shop.Ship",
        "item_details": {"order": 8, "key": "8"},
    }
    spans = shop.written("spans.jsonl")
    delivered = {
        span["attributes"]["messaging.message.id"]: span["context"]["trace_id"]
        for span in spans
        if span["name"] == "deliver order_outbox_item"
    }
    assert set(delivered.values()) == {f"0x{good_trace}", f"0x{bad_trace}"}
    # What the transport creates itself goes on with the trace in which it is called.
    creation = next(span for span in spans if span["name"] == "create payment_outbox_item")
    sending = {span["context"]["trace_id"] for span in spans if span["name"] == "send order_outbox_item"}
    assert creation["context"]["trace_id"] in sending


def test_an_application_that_configures_logging_for_its_own_lines_does_not_silence_the_worker(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports="shop.Ship: {}")
    project.config.write_text(f"{project.config.read_text()}app: [shop]\n")
    (tmp_path / "shop.py").write_text(SILENCING)
    project.run("db", "create")
    project.fill(1)
    with project.worker() as worker:
        eventually(lambda: project.counts() == {1: 1})
        assert worker.stop() == 0
        assert worker.logged("started: order_outbox_item")
        assert "no such address" in worker.logged("item failed for good")[0]["message"]
        assert "theirs: shipping" in worker.log.read_text().splitlines()


@pytest.fixture
def _logging_as_it_was() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger("boxengine")]
    kept = [(each, list(each.handlers), each.level, each.propagate) for each in loggers]
    yield
    for each, handlers, level, propagate in kept:
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)


@pytest.mark.usefixtures("_logging_as_it_was")
@pytest.mark.parametrize(("option", "level"), [(None, logging.WARNING), ("error", logging.ERROR)])
def test_the_command_lines_log_level_goes_before_the_configurations(
    tmp_path: Path, option: str | None, level: int
) -> None:
    project = Project(
        tmp_path, database="postgresql+psycopg://h/d", redis="redis://h", more="logging: {level: WARNING}"
    )
    Globals(log_level=option).configure_logs(project.boxes())
    assert logging.getLogger("boxengine").level == level
