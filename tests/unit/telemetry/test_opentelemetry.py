from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.telemetry.combined import CombinedTracer
from boxengine.adapters.telemetry.opentelemetry import LOOK_EVERY, MOST_LINKS, OpenTelemetryTracer
from boxengine.adapters.telemetry.tags import LogTracer
from boxengine.domain.item import Item
from boxengine.ports import NotTaken, Tracer
from tests.unit.telemetry.samples import BOX, item


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


@pytest.fixture
def tracer(provider: TracerProvider) -> OpenTelemetryTracer:
    return OpenTelemetryTracer(clock=ManualClock(), provider=provider)


def spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def created(tracer: OpenTelemetryTracer) -> dict[str, str]:
    """The headers that one creation puts on its items."""
    with tracer.creating(BOX, 1):
        return tracer.inject({})


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def test_it_is_a_tracer(tracer: OpenTelemetryTracer) -> None:
    port: Tracer = tracer
    assert port is tracer


def test_the_context_of_the_creation_is_injected_beside_the_headers_there(
    tracer: OpenTelemetryTracer, exporter: InMemorySpanExporter
) -> None:
    with tracer.creating(BOX, 1):
        headers = tracer.inject({"x": "y"})
    span = spans(exporter)[f"create {BOX.name}"]
    assert span.context is not None
    assert headers["x"] == "y"
    assert headers["traceparent"].split("-")[1:3] == [
        trace.format_trace_id(span.context.trace_id),
        trace.format_span_id(span.context.span_id),
    ]


def test_options_nested_deeper_than_python_reads_carry_no_context(tracer: OpenTelemetryTracer) -> None:
    deep = f'{{"traceparent": {"[" * 100_000}{"]" * 100_000}}}'
    with tracer.processing(BOX, [item(1, options=deep)]):
        pass


def test_a_context_that_the_headers_carry_already_stays(tracer: OpenTelemetryTracer) -> None:
    headers = {"Traceparent": "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"}
    with tracer.creating(BOX, 1):
        assert tracer.inject(headers) is headers


def test_without_a_context_the_very_same_headers_come_back(tracer: OpenTelemetryTracer) -> None:
    headers = {"x": "y"}
    assert tracer.inject(headers) is headers


def test_a_creation_of_one_or_many_says_how_many(tracer: OpenTelemetryTracer, exporter: InMemorySpanExporter) -> None:
    with tracer.creating(BOX, 500):
        pass
    span = spans(exporter)[f"create {BOX.name}"]
    assert span.kind is SpanKind.PRODUCER
    assert dict(span.attributes or {}) == {
        "messaging.system": "boxengine",
        "messaging.operation.type": "create",
        "messaging.operation.name": "create",
        "messaging.destination.name": BOX.name,
        "messaging.batch.message_count": 500,
        "boxengine.box.type": "outbox",
    }


def test_an_items_trace_goes_from_its_creation_through_processing_to_the_transport(
    tracer: OpenTelemetryTracer, exporter: InMemorySpanExporter
) -> None:
    headers = created(tracer)
    single = item(7, options={"headers": headers})
    with tracer.processing(BOX, [single]), tracer.sending(BOX, "kafka", [single]):
        pass
    found = spans(exporter)
    create, process, send = (found[f"{name} {BOX.name}"] for name in ("create", "process", "send"))
    assert create.context is not None
    assert process.context is not None
    assert process.parent is not None
    assert send.parent is not None
    assert trace_of(create) == trace_of(process) == trace_of(send)
    assert process.parent.span_id == create.context.span_id
    assert send.parent.span_id == process.context.span_id
    assert (process.kind, send.kind) == (SpanKind.CONSUMER, SpanKind.CLIENT)
    assert (process.attributes or {})["messaging.operation.type"] == "process"
    assert (process.attributes or {})["messaging.message.id"] == single.uuid
    assert (send.attributes or {})["messaging.operation.type"] == "send"
    assert (send.attributes or {})["boxengine.transport"] == "kafka"
    assert "messaging.batch.message_count" not in (process.attributes or {})


@pytest.mark.parametrize("as_text", [True, False])
def test_a_batch_of_several_creations_links_to_each_of_them_once(
    tracer: OpenTelemetryTracer, exporter: InMemorySpanExporter, as_text: bool
) -> None:
    one, two = created(tracer), created(tracer)
    options = [{"headers": one}, {"headers": two}, {"headers": one}, {"headers": {"x": "y"}}, {}]
    items = [
        item(number, options=json.dumps(each) if as_text else each) for number, each in enumerate(options, start=1)
    ]
    with tracer.processing(BOX, [*items, item(9, options=None)]):
        pass
    process = spans(exporter)[f"process {BOX.name}"]
    creations = {trace_of(span) for span in exporter.get_finished_spans() if span.name.startswith("create")}
    assert process.parent is None
    assert {link.context.trace_id for link in process.links} == creations
    assert len(process.links) == 2
    assert (process.attributes or {})["messaging.batch.message_count"] == 6
    assert "messaging.message.id" not in (process.attributes or {})


def test_no_more_links_are_made_than_a_span_keeps(tracer: OpenTelemetryTracer, exporter: InMemorySpanExporter) -> None:
    items = [
        item(number, options={"headers": {"traceparent": f"00-{number:032x}-{number:016x}-01"}})
        for number in range(1, 2 * MOST_LINKS)
    ]
    with tracer.processing(BOX, items):
        pass
    assert len(spans(exporter)[f"process {BOX.name}"].links) == MOST_LINKS


def test_a_poll_has_a_span_with_its_partition(tracer: OpenTelemetryTracer, exporter: InMemorySpanExporter) -> None:
    with tracer.polling(BOX, 3):
        assert trace.get_current_span().is_recording()
    span = spans(exporter)[f"poll {BOX.name}"]
    assert (span.attributes or {})["messaging.operation.type"] == "receive"
    assert (span.attributes or {})["messaging.destination.partition.id"] == "3"


def test_a_transport_that_raises_leaves_an_error_on_its_span_and_on_the_items(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    tracer = OpenTelemetryTracer(clock=ManualClock(), provider=provider, item_spans=True)
    headers = created(tracer)

    def send() -> None:
        with tracer.sending(BOX, "http", [item(1, options={"headers": headers}), item(2)]):
            raise TimeoutError("no answer")

    with pytest.raises(TimeoutError, match="no answer"):
        send()
    found = exporter.get_finished_spans()
    assert {span.name: span.status.status_code for span in found if not span.name.startswith("create")} == {
        f"send {BOX.name}": StatusCode.ERROR,
        f"deliver {BOX.name}": StatusCode.ERROR,
    }


def test_an_item_that_a_transport_refuses_without_raising_leaves_an_error_on_its_span(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    tracer = CombinedTracer([OpenTelemetryTracer(clock=ManualClock(), provider=provider, item_spans=True), LogTracer()])
    bad, good = item(1), item(2)
    with suppress(NotTaken), tracer.sending(BOX, "kafka", [bad, good]):
        raise NotTaken({1: "the broker refused it"})
    found = {
        (span.attributes or {}).get("messaging.message.id"): (span.status.status_code, span.status.description)
        for span in exporter.get_finished_spans()
    }
    refused = (StatusCode.ERROR, "the broker refused it")
    assert found == {None: refused, bad.uuid: refused, good.uuid: (StatusCode.UNSET, None)}
    assert not any(span.events for span in exporter.get_finished_spans()), "nothing was raised"


def test_item_spans_continue_each_items_own_trace(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    tracer = OpenTelemetryTracer(clock=ManualClock(), provider=provider, item_spans=True)
    items = [item(number, options={"headers": created(tracer)}) for number in (1, 2)]
    with tracer.sending(BOX, "http", items):
        pass
    found = exporter.get_finished_spans()
    creations = [trace_of(span) for span in found if span.name.startswith("create")]
    deliveries = [span for span in found if span.name.startswith("deliver")]
    assert [trace_of(span) for span in deliveries] == creations[::-1]
    assert {(span.attributes or {})["messaging.message.id"] for span in deliveries} == {each.uuid for each in items}
    batch = spans(exporter)[f"send {BOX.name}"]
    assert {link.context.span_id for span in deliveries for link in span.links} == {
        batch.context.span_id if batch.context else 0
    }


@pytest.mark.parametrize("headers", [{"traceparent": "nonsense"}, "no mapping", None])
def test_headers_that_hold_no_context_are_no_trouble(
    tracer: OpenTelemetryTracer, exporter: InMemorySpanExporter, headers: object
) -> None:
    with tracer.processing(BOX, [item(1, options=json.dumps({"headers": headers, "traceparent": 1}))]):
        pass
    assert spans(exporter)[f"process {BOX.name}"].parent is None


def test_headers_of_a_request_that_name_a_trace_are_left_as_they_are(tracer: OpenTelemetryTracer) -> None:
    token = otel_context.attach(baggage.set_baggage("tenant", "7"))
    try:
        with tracer.creating(BOX, 1):
            for name in ("traceparent", "Traceparent", "tracestate"):
                assert tracer.inject({name: "theirs"}) == {name: "theirs"}
    finally:
        otel_context.detach(token)


@pytest.mark.parametrize("name", ["baggage", "Baggage"])
def test_headers_with_baggage_alone_keep_it_and_are_given_the_trace(tracer: OpenTelemetryTracer, name: str) -> None:
    token = otel_context.attach(baggage.set_baggage("tenant", "7"))
    try:
        with tracer.creating(BOX, 1):
            headers = tracer.inject({name: "tenant=8"})
    finally:
        otel_context.detach(token)
    assert headers.pop("traceparent")
    assert headers == {name: "tenant=8"}


def test_baggage_travels_even_without_an_sdk() -> None:
    tracer = OpenTelemetryTracer(clock=ManualClock())
    token = otel_context.attach(baggage.set_baggage("tenant", "7"))
    try:
        assert tracer.inject({"x": "y"}) == {"x": "y", "baggage": "tenant=7"}
    finally:
        otel_context.detach(token)


def test_without_an_sdk_nothing_is_allocated_however_many_items_there_are() -> None:
    tracer = OpenTelemetryTracer(clock=ManualClock())
    headers = {"x": "y"}
    items = [item(number, options='{"headers": {"traceparent": "x"}}') for number in range(1000)]

    def use() -> None:
        with tracer.creating(BOX, 1000), tracer.polling(BOX, 1):
            assert tracer.inject(headers) is headers
        with tracer.processing(BOX, items), tracer.sending(BOX, "kafka", items):
            pass

    use()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        use()
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < 4096


def calls_of(work: Callable[[], None]) -> int:
    """Calls of Python and C functions, which are the same on every machine and under every load."""
    counted = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    work()  # what is made once is made here
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def worker_tracer() -> Tracer:
    """As ``boxengine start`` puts it together; no SDK is set up here."""
    return CombinedTracer([OpenTelemetryTracer(clock=ManualClock(), item_spans=True), LogTracer()])


def test_without_an_sdk_a_batch_costs_a_worker_as_many_calls_as_one_item() -> None:
    tracer = worker_tracer()
    batches = [
        [item(number, options='{"headers": {"traceparent": "x"}}') for number in range(size)] for size in (2, 1000)
    ]

    def process(items: list[Item]) -> None:
        with tracer.processing(BOX, items), tracer.sending(BOX, "kafka", items):
            pass

    two, thousand = (calls_of(partial(process, items)) for items in batches)
    assert two == thousand
    assert two < 100


def test_without_an_sdk_an_item_that_is_sent_by_itself_costs_a_worker_some_ten_calls() -> None:
    tracer = worker_tracer()
    single = item(1, options='{"headers": {"traceparent": "x"}}')
    with tracer.processing(BOX, [single]):
        each = tracer.sending_each(BOX, "http")
    assert each is not None

    def send(times: int) -> None:
        for _ in range(times):
            with each(single):
                pass

    one, eleven = calls_of(partial(send, 1)), calls_of(partial(send, 11))
    assert (eleven - one) / 10 <= 12


def test_without_an_sdk_a_creation_costs_as_many_calls_for_one_row_as_for_a_thousand() -> None:
    tracer = OpenTelemetryTracer(clock=ManualClock())

    def create(count: int) -> None:
        with tracer.creating(BOX, count):
            tracer.inject({})

    assert calls_of(partial(create, 1)) == calls_of(partial(create, 1000)) < 25


def test_an_sdk_that_is_set_up_later_is_noticed_within_a_second(
    provider: TracerProvider, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    tracer = OpenTelemetryTracer(clock=clock)
    with tracer.creating(BOX, 1):
        pass
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    clock.advance(timedelta(seconds=LOOK_EVERY))
    with tracer.creating(BOX, 1):
        pass
    assert list(spans(exporter)) == [f"create {BOX.name}"]
