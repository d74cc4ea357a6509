from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from boxengine.adapters.telemetry import logs
from boxengine.adapters.telemetry.logs import BoxHandler, LogObserver
from boxengine.adapters.telemetry.tags import LogTracer, bound
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from tests.unit.telemetry.samples import BOX, CIRCUIT, item

logger = logging.getLogger("boxengine.test")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger("boxengine")
    handlers, level, propagate = list(root.handlers), root.level, root.propagate
    yield
    root.handlers[:], root.propagate = handlers, propagate
    root.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail(message: str) -> None:
    raise ValueError(message)


def test_a_json_line_has_time_level_message_and_tags() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    logger.info("polled %d rows", 3, extra={"box": "order", "bucket": 7, "absent": None})
    (line,) = lines(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "boxengine.test",
        "message": "polled 3 rows",
        "box": "order",
        "bucket": 7,
    }


def test_an_exception_is_a_field_of_its_line() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    try:
        fail("two\nlines")
    except ValueError:
        logger.exception("broken")
    (line,) = lines(stream)
    assert line["error"] == "ValueError: two\nlines"
    assert "Traceback" in line["traceback"]


def test_auto_is_text_on_a_terminal_and_json_elsewhere() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    logs.configure(stream=terminal)
    logger.warning("slow", extra={"box": "order"})
    logs.configure(stream=pipe)
    logger.warning("slow", extra={"box": "order"})
    assert terminal.getvalue().rstrip().endswith("WARNING slow box=order")
    assert lines(pipe)[0]["message"] == "slow"


def test_a_traceback_follows_its_line_of_text() -> None:
    stream = io.StringIO()
    logs.configure(format="text", stream=stream)
    try:
        fail("boom")
    except ValueError:
        logger.exception("broken")
    assert "ERROR   broken\nTraceback" in stream.getvalue()


def test_configuring_twice_writes_each_line_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure(format="json", stream=first)
    logs.configure(format="json", level="WARNING", stream=second)
    logger.info("quiet")
    logger.warning("loud")
    assert first.getvalue() == ""
    assert [line["message"] for line in lines(second)] == ["loud"]
    assert sum(isinstance(handler, BoxHandler) for handler in logging.getLogger("boxengine").handlers) == 1


def test_bound_tags_are_on_every_line_inside_and_a_lines_own_win() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    with bound(box="order", bucket=1):
        with bound(bucket=2):
            logger.info("inner", extra={"box": "own"})
        logger.info("outer")
    logger.info("outside")
    tags = [(line.get("box"), line.get("bucket")) for line in lines(stream)]
    assert tags == [("own", 2), ("order", 1), (None, None)]


def test_a_transports_lines_carry_the_item_they_are_about() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    tracer = LogTracer()
    with tracer.polling(BOX, 4):
        logger.info("poll")
    with tracer.processing(BOX, [item(1), item(2)]):
        with tracer.sending(BOX, "http", [item(1, bucket=5)]):
            logger.info("one")
        with tracer.sending(BOX, "http", [item(1), item(2)]):
            logger.info("many")
    poll, one, many = lines(stream)
    assert (poll["box"], poll["partition"]) == (BOX.name, 4)
    assert (one["box"], one["transport"], one["bucket"], one["item"]) == (BOX.name, "http", 5, 1)
    assert many["transport"] == "http"
    assert "item" not in many


def test_a_line_inside_a_span_carries_its_trace_id() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    provider = TracerProvider(shutdown_on_exit=False)
    with provider.get_tracer("test").start_as_current_span("work") as span:
        logger.info("inside")
    logger.info("outside")
    inside, outside = lines(stream)
    assert inside["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert "trace_id" not in outside


def test_failures_are_warnings_and_only_so_many_per_batch() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    failed = [FailedAttempt(1, Status.FAILED, 3, "12:00 http: refused\nTraceback ...")]
    failed += [FailedAttempt(number, Status.PENDING, 1, "12:00 http: refused") for number in range(2, 12)]
    items = [item(number, bucket=number) for number in range(1, 12)]
    LogObserver(most_items=2).settled(BOX, items, Settlement(failed=failed), seconds=0.1)
    first, second, rest = lines(stream)
    assert first["message"] == "item failed for good (attempt 3): 12:00 http: refused"
    assert (first["level"], first["box"], first["bucket"], first["item"]) == ("warning", BOX.name, 1, 1)
    assert second["message"] == "item will be tried again (attempt 1): 12:00 http: refused"
    assert rest["message"] == "9 more items of this batch failed"


def test_a_settled_batch_is_one_line_at_debug_and_none_above() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    LogObserver().settled(BOX, [item(1)], Settlement(delivered=[1]), seconds=0.1)
    assert stream.getvalue() == ""
    logs.configure(format="json", level="DEBUG", stream=stream)
    LogObserver().settled(BOX, [item(1)], Settlement(delivered=[1]), seconds=0.1)
    assert lines(stream)[0]["message"] == "batch settled: 1 delivered, 0 failed, 0 discarded of 1 in 0.100 s"


def test_outages_and_recoveries_and_lost_batches_are_said() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="DEBUG", stream=stream)
    observer = LogObserver()
    observer.outage("redis", "connection refused")
    observer.recovered("redis", seconds=12.34)
    observer.fetch_failed(BOX, "lock timeout")
    observer.deleted(BOX, rows=10, seconds=0.5)
    assert [(line["level"], line["message"]) for line in lines(stream)] == [
        ("warning", "redis does not work, tried again with growing pauses: connection refused"),
        ("info", "redis works again, after 12.3 s"),
        ("debug", "items could not be read or recorded: lock timeout"),
        ("debug", "retention deleted 10 rows in 0.500 s"),
    ]


def test_a_circuit_that_opens_or_closes_is_said() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    LogObserver().circuit_changed(BOX, "kafka", CIRCUIT)
    LogObserver().circuit_changed(BOX, "kafka", None)
    assert [(line["level"], line["message"], line["transport"]) for line in lines(stream)] == [
        ("warning", "circuit open: no broker answers; next try after 2026-01-31T12:00:00.000000Z", "kafka"),
        ("info", "circuit closed: items go out again", "kafka"),
    ]


def test_the_default_error_tracker_logs_errors_and_messages_with_their_context() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    logs.report(ValueError("boom"), box="order", item=7, message="not the line's own")
    logs.report("item failed for good", box="order")
    first, second = lines(stream)
    assert (first["level"], first["message"], first["error"]) == ("error", "ValueError: boom", "ValueError: boom")
    assert (first["box"], first["item"], first["message_"]) == ("order", 7, "not the line's own")
    assert (second["message"], second["box"]) == ("item failed for good", "order")
