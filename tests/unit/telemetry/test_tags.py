"""What a line is about, though the transport that writes it knows of none of it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator, Mapping
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.telemetry import logs
from boxengine.adapters.telemetry.combined import CombinedTracer
from boxengine.adapters.telemetry.log_observer import LogObserver
from boxengine.adapters.telemetry.opentelemetry import OpenTelemetryTracer
from boxengine.adapters.telemetry.tags import LogTracer, bound
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from boxengine.ports import events
from tests.unit.telemetry.samples import BOX, item

TRACE = "0af7651916cd43dd8448eb211c80319c"
CREATED = {"headers": {"Traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}}
theirs = logging.getLogger("shop.transports")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What a worker process writes; the application has set up no logging."""
    root, ours = logging.getLogger(), logging.getLogger("boxengine")
    kept = [(each, list(each.handlers), each.level, each.propagate) for each in (root, ours)]
    root.handlers[:] = []
    written = io.StringIO()
    logs.configure(format="json", stream=written, process=True)
    yield written
    for each, handlers, level, propagate in kept:
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def with_details(details: object) -> Item:
    def hook(item: Item) -> object:
        if isinstance(details, Exception):
            raise details
        return details

    return item(7)._replace(box=replace(BOX, extra_log_details=hook))


def test_a_transports_own_logger_is_written_with_box_bucket_item_and_the_trace_of_its_creation(
    stream: io.StringIO,
) -> None:
    with LogTracer().sending(BOX, "http", [item(7, bucket=3, options=CREATED)]):
        theirs.info("posted")
    theirs.info("idle")
    posted, idle = lines(stream)
    assert posted.items() >= {"logger": "shop.transports", "box": BOX.name, "bucket": 3, "item": 7}.items()
    assert (posted["transport"], posted["trace_id"]) == ("http", TRACE)
    assert idle.keys() == {"time", "level", "logger", "message"}


def test_beside_a_trace_of_the_batch_a_line_about_one_item_names_the_items_own(stream: io.StringIO) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    tracer = CombinedTracer([OpenTelemetryTracer(clock=ManualClock(), provider=provider), LogTracer()])
    with tracer.processing(BOX, [item(7), item(8)]):
        each = tracer.sending_each(BOX, "http")
        assert each is not None
        batch = trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)
        with tracer.sending(BOX, "http", [item(7, options=CREATED)]):
            theirs.info("one with a trace")
        with tracer.sending(BOX, "http", [item(8)]):
            theirs.info("one without")
        with tracer.sending(BOX, "http", [item(7), item(8)]):
            theirs.info("both")
        with each(item(7, options=CREATED)):
            theirs.info("in turn, with a trace")
        with each(item(8)):
            theirs.info("in turn, without")
    expected = [(TRACE, 7), (batch, 8), (batch, None), (TRACE, 7), (batch, 8)]
    assert [(line["trace_id"], line.get("item")) for line in lines(stream)] == expected
    provider.shutdown()


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"order": 42, "name": "x"}, {"order": 42, "name_": "x"}),
        (ValueError("no order"), {"extra_log_details": "ValueError: no order"}),
        ([1], {"extra_log_details": "TypeError: extra_log_details: expected a mapping, got list"}),
    ],
)
def test_what_a_models_extra_log_details_says_is_on_every_line_about_its_item(
    stream: io.StringIO, details: object, expected: Mapping[str, Any]
) -> None:
    sent = with_details(details)
    with LogTracer().sending(BOX, "http", [sent]):
        theirs.info("posted")
    failed = [FailedAttempt(7, Status.PENDING, 1, "12:00 http: refused")]
    LogObserver().see(events.Settled(BOX, [sent], Settlement(failed=failed), seconds=0.1))
    posted, refused = lines(stream)
    assert posted.items() >= expected.items()
    assert refused.items() >= (dict(expected) | {"item": 7, "level": "warning"}).items()


def test_nothing_is_worked_out_for_a_line_that_is_not_written(stream: io.StringIO) -> None:
    asked: list[int] = []

    def hook(item: Item) -> dict[str, Any]:
        asked.append(item.id)
        return {}

    watched = item(7)._replace(box=replace(BOX, extra_log_details=hook))
    with LogTracer().sending(BOX, "http", [watched]):
        theirs.debug("not written at level info")
        assert asked == []
        theirs.info("written")
    assert asked == [7]


def test_options_that_are_no_json_cost_a_line_its_trace_and_nothing_else(stream: io.StringIO) -> None:
    with LogTracer().sending(BOX, "http", [item(7, options='{"traceparent')]):
        theirs.info("posted")
    assert [line["item"] for line in lines(stream)] == [7]


@pytest.mark.parametrize(
    "headers",
    [
        {"baggage": "no pair"},
        {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "tracestate": "no pair"},
    ],
)
def test_a_header_that_the_propagator_does_not_understand_costs_a_transport_nothing(
    stream: io.StringIO, headers: dict[str, str]
) -> None:
    with LogTracer().sending(BOX, "http", [item(7, options={"headers": headers})]):
        theirs.info("posted")
    complaint, posted = lines(stream)
    assert complaint["logger"].startswith("opentelemetry.")
    assert (posted["message"], posted["item"]) == ("posted", 7)
    assert ("trace_id" in posted) == ("traceparent" in headers)


def test_a_model_whose_details_are_worked_out_with_lines_of_their_own_has_both(stream: io.StringIO) -> None:
    def hook(item: Item) -> dict[str, Any]:
        theirs.info("looked up")
        return {"order": 42}

    with LogTracer().sending(BOX, "http", [item(7)._replace(box=replace(BOX, extra_log_details=hook))]):
        theirs.info("posted")
    assert [(line["message"], line.get("order")) for line in lines(stream)] == [("looked up", None), ("posted", 42)]


def test_a_propagator_that_raises_costs_a_line_its_trace_and_nothing_else(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(TraceContextTextMapPropagator):
        def extract(self, *_args: object, **_options: object) -> Any:
            raise KeyError("span")

    monkeypatch.setattr("opentelemetry.propagate.get_global_textmap", Broken)
    with LogTracer().sending(BOX, "http", [item(7, options=CREATED)]):
        theirs.info("posted")
    assert [(line["item"], line.get("trace_id")) for line in lines(stream)] == [(7, None)]


def test_work_within_work_is_noted_and_taken_back(stream: io.StringIO) -> None:
    tracer = LogTracer()
    with bound(order=1), tracer.processing(BOX, [item(1)]):
        with tracer.sending(BOX, "http", [item(1)]):
            theirs.info("inner")
        theirs.info("outer")
    inner, outer = lines(stream)
    assert (inner["order"], inner["item"], outer["order"]) == (1, 1, 1)
    assert "item" not in outer


def test_items_sent_one_by_one_are_noted_in_turn_and_what_they_start_keeps_its_own(stream: io.StringIO) -> None:
    tracer, contexts = LogTracer(), list[Context]()
    with tracer.processing(BOX, [item(1), item(2)]):
        whole = tracer.in_hand()
        each = tracer.sending_each(BOX, "http")
        for number in (1, 2):
            with each(item(number)):
                contexts.append(copy_context())
                assert str(*tracer.in_hand().values()).endswith(f"item {number}")
            assert tracer.in_hand() == whole
        theirs.info("between")
    assert tracer.in_hand() == {}
    for context in contexts:
        context.run(theirs.info, "started by an item")
    between, *started = lines(stream)
    assert "item" not in between
    assert [line["item"] for line in started] == [1, 2]


@pytest.mark.parametrize("of_all", [True, False], ids=["root too", "boxengine alone"])
def test_lines_of_the_engine_go_where_the_application_sends_them_and_nowhere_else(of_all: bool) -> None:
    root, ours = logging.getLogger(), logging.getLogger("boxengine")
    kept = [(each, list(each.handlers), each.level, each.propagate) for each in (root, ours)]
    own, engines, written = io.StringIO(), io.StringIO(), io.StringIO()
    root.handlers[:] = [logging.StreamHandler(own)] if of_all else []
    try:
        logs.configure(format="json", stream=written)
        ours.addHandler(logging.StreamHandler(engines))
        ours.propagate = not of_all
        logs.configure(format="json", stream=written, process=True)
        theirs.warning("theirs")
        logging.getLogger("boxengine.test").warning("ours")
        assert engines.getvalue() == "ours\n"
        assert own.getvalue() == ("theirs\n" if of_all else "")
        assert [line["message"] for line in lines(written)] == ([] if of_all else ["theirs"])
    finally:
        for each, handlers, level, propagate in kept:
            each.handlers[:], each.propagate = handlers, propagate
            each.setLevel(level)


def test_an_application_that_set_up_logging_keeps_its_own_lines_to_itself() -> None:
    root, ours = logging.getLogger(), logging.getLogger("boxengine")
    kept = [(each, list(each.handlers), each.level, each.propagate) for each in (root, ours)]
    own, written = io.StringIO(), io.StringIO()
    root.handlers[:] = [logging.StreamHandler(own)]
    try:
        logs.configure(format="json", stream=written, process=True)
        theirs.warning("theirs")
        logging.getLogger("boxengine.test").warning("ours")
        assert own.getvalue() == "theirs\n"
        assert [line["message"] for line in lines(written)] == ["ours"]
    finally:
        for each, handlers, level, propagate in kept:
            each.handlers[:], each.propagate = handlers, propagate
            each.setLevel(level)
