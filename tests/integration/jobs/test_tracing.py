"""Traces of jobs, from a creation in one transaction to a handler in another process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from boxengine.adapters.sql.making import schema
from boxengine.domain.jobs import JobState
from tests.eventually import eventually
from tests.integration.jobs.shop import NAME, Shop

INBOX = "mail_inbox_item"
TASKS = {"traced": "tests.integration.jobs.computing.traced"}


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An SDK, as an application sets it up."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def broken(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """An SDK whose sampler, propagator or processor has a fault."""

    def fail(*args: Any, **_more: Any) -> Any:
        if at == "text of a header":
            args[0]["x-trace"] = "\0"
            return
        raise RuntimeError(f"the {at} is broken")

    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    processor = SpanProcessor()
    provider.add_span_processor(processor)
    where: dict[str, tuple[object, str]] = {
        "sampler": (provider.sampler, "should_sample"),
        "propagator": (propagate.get_global_textmap(), "inject"),
        "text of a header": (propagate.get_global_textmap(), "inject"),
        "start of a span": (processor, "on_start"),
        "end of a span": (processor, "on_end"),
    }
    monkeypatch.setattr(*where[at], fail)


@pytest.mark.parametrize("at", ["sampler", "propagator", "text of a header", "start of a span", "end of a span"])
@pytest.mark.parametrize("kind", ["item", "job"])
def test_a_fault_of_the_sdk_fails_no_creation(
    at: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    postgres_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with closing(Shop(tmp_path, postgres_url, inbox_items={INBOX: {}})) as shop:
        schema.create(shop.engine, [shop.boxes.pipeline(INBOX).box])
        broken(monkeypatch, at)
        if kind == "job":
            created = shop.create("export")
        else:
            with shop.engine.begin() as connection:
                created = shop.boxes.create_inbox_item(connection, INBOX, event_key="a", payload=b"")
        assert created == 1
    (told,) = (record for record in caplog.records if record.name.startswith("boxengine"))
    assert told.exc_info is not None
    assert re.search(f"the {at} is broken|NUL", str(told.exc_info[1]))


@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.parametrize("database", ["postgres_url", "mysql_url"])
def test_what_a_handler_calls_continues_the_trace_of_the_request_that_created_its_job(
    database: str,
    executor: str,
    exporter: InMemorySpanExporter,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    box = {"model": "tests.integration.jobs.handlers.ReportJob", "executor": executor, "tasks": TASKS}
    with closing(Shop(tmp_path, request.getfixturevalue(database), job_items={NAME: box})) as shop, shop.worker():
        with trace.get_tracer_provider().get_tracer("shop").start_as_current_span("POST /reports"):
            job = shop.create("traced")
        headers = shop.becomes(job, JobState.SUCCEEDED)["result"]
        eventually(lambda: len(exporter.get_finished_spans()) == 3)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    request_, creation, process = (spans[name] for name in ("POST /reports", f"create {NAME}", f"process {NAME}"))
    assert request_.context is not None
    assert creation.context is not None
    assert creation.parent is not None
    assert process.context is not None
    assert process.parent is not None
    assert creation.parent.span_id == request_.context.span_id
    assert process.parent.span_id == creation.context.span_id
    trace_id, span_id = trace.format_trace_id(request_.context.trace_id), trace.format_span_id(process.context.span_id)
    assert headers["traceparent"].split("-")[1:3] == [trace_id, span_id]
