"""A job's trace leads from its creation to its handler, and its handler's log lines say which job they are about."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.telemetry.combined import CombinedTracer
from boxengine.adapters.telemetry.opentelemetry import LOOK_EVERY, OpenTelemetryTracer
from boxengine.adapters.telemetry.tags import STANDARD, LogTracer, TagFilter
from boxengine.domain.outcome import Failure
from boxengine.engine.jobs.batch_handler import BatchHandler
from boxengine.engine.jobs.create import JobCreator
from boxengine.engine.jobs.handle import Handler
from boxengine.errors import JobRetry
from tests.unit.jobs.crew import BOX, Crew


class Traces:
    """Spans of a test, by name."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.notes = LogTracer()
        spans = OpenTelemetryTracer(clock=ManualClock(), provider=self.provider)
        self.tracer = CombinedTracer([spans, self.notes])

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == f"{name} {BOX.name}"]

    def close(self) -> None:
        self.provider.shutdown()


@pytest.fixture
def traces() -> Iterator[Traces]:
    traces = Traces()
    yield traces
    traces.close()


@pytest.fixture
def tagged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What is logged, with tags."""
    tags = TagFilter()
    caplog.handler.addFilter(tags)
    yield caplog
    caplog.handler.removeFilter(tags)


def line_of(tagged: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The tags of the one line that the handler has logged."""
    (line,) = (record for record in tagged.records if record.name == "shop")
    return {name: value for name, value in vars(line).items() if name not in STANDARD}


class Rows:
    """``NewJobs`` of a crew."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def insert(self, _session: Any, jobs: Any) -> list[int]:
        return self._crew.jobs.insert(self._crew.box, jobs)


def create(crew: Crew, traces: Traces, count: int = 1) -> list[int]:
    creator = JobCreator(crew.box, Rows(crew), tasks={"report"}, tracer=traces.tracer)
    return creator.create(None, [{"task": "report"}] * count)


def context_of(span: ReadableSpan) -> trace.SpanContext:
    context: trace.SpanContext | None = span.context
    assert context is not None
    return context


def test_an_attempt_belongs_to_the_trace_of_the_creation_and_is_current_in_the_handler(traces: Traces) -> None:
    current: list[trace.SpanContext] = []
    crew = Crew(lambda _job: current.append(trace.get_current_span().get_span_context()), tracer=traces.tracer)
    (job,) = create(crew, traces)
    crew.work()
    (creation,), (process,) = traces.named("create"), traces.named("process")
    assert process.parent is not None
    assert process.parent.span_id == context_of(creation).span_id
    assert current == [context_of(process)]
    assert (creation.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert process.status.status_code is StatusCode.UNSET
    assert dict(process.attributes or {}) == {
        "messaging.system": "boxengine",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": BOX.name,
        "messaging.message.id": str(job),
        "boxengine.box.type": "job",
        "boxengine.job.task": "report",
        "boxengine.job.attempt": 1,
    }


def test_a_handler_that_is_async_def_runs_in_the_attempts_span(traces: Traces) -> None:
    current: list[trace.SpanContext] = []

    async def handler(_job: Any) -> None:
        current.append(trace.get_current_span().get_span_context())

    crew = Crew(handler, tracer=traces.tracer)
    create(crew, traces)
    crew.work()
    assert current == [context_of(traces.named("process")[0])]


def test_a_job_that_a_handler_creates_continues_its_trace(traces: Traces) -> None:
    def handler(job: Any) -> None:
        if job.id == 1:
            create(crew, traces)

    crew = Crew(handler, tracer=traces.tracer)
    create(crew, traces)
    crew.work()
    crew.work()
    spans = [*traces.named("create"), *traces.named("process")]
    assert len(spans) == 4
    assert len({context_of(span).trace_id for span in spans}) == 1


def test_a_handler_has_the_baggage_of_the_creation_and_what_it_creates_takes_it_on(traces: Traces) -> None:
    carried: list[object] = []

    def handler(job: Any) -> None:
        carried.append(baggage.get_baggage("tenant"))
        if job.id == 1:
            create(crew, traces)

    crew = Crew(handler, tracer=traces.tracer)
    token = context.attach(baggage.set_baggage("tenant", "7"))
    try:
        create(crew, traces)
    finally:
        context.detach(token)
    crew.work()
    crew.work()
    assert carried == ["7", "7"]
    assert baggage.get_baggage("tenant") is None, "the thread's next job has nothing of it"


def test_an_sdk_that_is_set_up_after_the_first_attempt_follows_the_next(
    traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    crew = Crew(lambda _job: None, tracer=OpenTelemetryTracer(clock=clock))
    crew.create()
    crew.work()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: traces.provider)
    clock.advance(timedelta(seconds=LOOK_EVERY))
    crew.create()
    crew.work()
    assert [(span.attributes or {})["messaging.message.id"] for span in traces.named("process")] == ["2"]


def raises(_job: Any) -> None:
    raise ValueError("the printer is on fire\nand so is the desk")


def retries(_job: Any) -> None:
    raise JobRetry


@pytest.mark.parametrize(
    ("handler", "status", "reason"),
    [
        (raises, StatusCode.ERROR, "report: ValueError: the printer is on fire"),
        (lambda _job: Failure("no paper"), StatusCode.ERROR, "report: no paper"),
        (retries, StatusCode.UNSET, None),
    ],
    ids=["raises", "returns a Failure", "asks for another attempt"],
)
def test_an_attempt_that_failed_has_an_error_with_its_reason(
    traces: Traces, handler: Handler, status: StatusCode, reason: str | None
) -> None:
    crew = Crew(handler, tracer=traces.tracer)
    create(crew, traces)
    crew.work()
    (span,) = traces.named("process")
    assert (span.status.status_code, span.status.description) == (status, reason)
    assert not span.events, "nothing reached the span"


def test_each_attempt_is_a_span_of_the_same_trace(traces: Traces) -> None:
    crew = Crew(raises, tracer=traces.tracer, box=replace(BOX, retry_interval=timedelta(0)))
    create(crew, traces)
    for _ in range(3):
        crew.work()
    (creation,), attempts = traces.named("create"), traces.named("process")
    assert [(span.attributes or {})["boxengine.job.attempt"] for span in attempts] == [1, 2, 3]
    assert {context_of(span).trace_id for span in attempts} == {context_of(creation).trace_id}


def test_a_job_that_was_lost_meanwhile_has_an_error(traces: Traces) -> None:
    crew = Crew(lambda _job: crew.pass_time(100), tracer=traces.tracer)
    create(crew, traces)
    crew.work()
    (span,) = traces.named("process")
    assert span.status.description == "the job was lost: another worker may have it"


def test_a_job_whose_lease_ended_before_its_handler_began_has_no_span(traces: Traces) -> None:
    crew = Crew(lambda _job: None, tracer=traces.tracer)
    create(crew, traces)
    crew.claimer.turn()
    crew.pass_time(100)
    crew.run()
    assert traces.named("process") == []


def test_a_batch_is_one_span_with_links_to_the_creations_and_the_first_reason(traces: Traces) -> None:
    def handle_batch(_jobs: Any) -> list[object]:
        return [None, Failure("no paper"), Failure("no ink")]

    crew = Crew(BatchHandler(handle_batch), batch_size=3, tracer=traces.tracer)
    create(crew, traces)
    create(crew, traces, 2)
    crew.work()
    creations, (process,) = traces.named("create"), traces.named("process")
    assert process.parent is None
    assert {link.context.span_id for link in process.links} == {context_of(span).span_id for span in creations}
    assert process.status.description == "2 attempts failed, the first: report: no paper"
    attributes = process.attributes or {}
    assert attributes["messaging.batch.message_count"] == 3
    assert attributes.keys().isdisjoint({"messaging.message.id", "boxengine.job.attempt"})


@pytest.mark.parametrize("stored", [["no headers"], {"traceparent": 1}, {"traceparent": "nonsense"}, "text"], ids=str)
def test_whatever_somebody_has_stored_as_a_context_the_job_runs(
    traces: Traces, stored: Any, tagged: pytest.LogCaptureFixture
) -> None:
    crew = Crew(lambda _job: logging.getLogger("shop").warning("at work"), tracer=traces.tracer)
    crew.create(trace_context=stored)
    crew.work()
    assert crew.ends() == ["succeeded"]
    assert "at work" in tagged.messages


def test_without_an_sdk_nothing_is_stored_and_the_lines_of_a_handler_name_its_job(
    tagged: pytest.LogCaptureFixture,
) -> None:
    noting = LogTracer()
    seen: list[str] = []

    def handler(job: Any) -> None:
        logging.getLogger("shop").warning("at work")
        seen.append(str(noting.in_hand()[threading.get_ident()]))

    crew = Crew(handler, tracer=noting)
    creator = JobCreator(crew.box, Rows(crew), tasks={"report"}, tracer=OpenTelemetryTracer(clock=ManualClock()))
    creator.create(None, [{"task": "report"}])
    assert crew.row().trace_context is None
    crew.work()
    assert line_of(tagged) == {"box": BOX.name, "task": "report", "job": 1, "attempt": 1}
    assert seen == [f"box {BOX.name}, task report, job 1, attempt 1"]
    assert noting.in_hand() == {}


def test_where_only_the_application_traces_lines_name_the_trace_of_the_creation(
    traces: Traces, tagged: pytest.LogCaptureFixture
) -> None:
    crew = Crew(lambda _job: logging.getLogger("shop").warning("at work"), tracer=LogTracer())
    create(crew, traces)
    crew.work()
    (creation,) = traces.named("create")
    assert line_of(tagged)["trace_id"] == trace.format_trace_id(context_of(creation).trace_id)


def test_the_lines_of_a_batch_name_its_box_and_task(tagged: pytest.LogCaptureFixture) -> None:
    noting = LogTracer()
    seen: list[str] = []

    def handle_batch(_jobs: Any) -> None:
        logging.getLogger("shop").warning("at work")
        seen.append(str(noting.in_hand()[threading.get_ident()]))

    crew = Crew(BatchHandler(handle_batch), batch_size=2, tracer=noting)
    crew.create()
    crew.create()
    crew.work()
    assert line_of(tagged) == {"box": BOX.name, "task": "report"}
    assert seen == [f"box {BOX.name}, task report, 2 jobs from 1 to 2"]


def test_headers_of_the_creation_are_those_that_propagators_write(traces: Traces) -> None:
    crew = Crew(lambda _job: None, tracer=traces.tracer)
    create(crew, traces)
    stored = crew.row().trace_context
    assert stored is not None
    (creation,) = traces.named("create")
    found = trace.get_current_span(propagate.extract(stored)).get_span_context()
    assert found.span_id == context_of(creation).span_id
