"""Traces an item from the transaction that created it to its transport, and a job to its handler.

Only ``opentelemetry-api`` is needed. If no SDK is set up, every method returns at once without looking at the items.
Names and attributes follow the semantic conventions for messaging.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, NoOpTracerProvider, ProxyTracerProvider, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.json_values import json_text
from boxengine.ports import Around, AttemptsFailed, Clock, NotTaken

if TYPE_CHECKING:
    from boxengine.domain.jobs import ClaimedJob, JobBox

INSTRUMENTATION = "boxengine"
LOOK_EVERY = 1.0
"""Seconds between two checks for an SDK, while there is none."""
MOST_LINKS = 128
"""The SDK keeps no more links than this on a span, so no more items are looked at for them."""

_BESIDE_THE_TRACE = {"baggage"}
"""Headers of a context that say nothing of its trace."""
_NOTHING: AbstractContextManager[object] = nullcontext()


def current_traceparent() -> str | None:
    """The current span in the form of W3C's ``traceparent``; None outside any span."""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{trace.format_trace_id(span.trace_id)}-{trace.format_span_id(span.span_id)}-{span.trace_flags:02x}"


class OpenTelemetryTracer:
    """A ``Tracer`` whose spans go to an OpenTelemetry provider."""

    def __init__(
        self,
        *,
        clock: Clock,
        provider: trace.TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
        item_spans: bool = False,
    ) -> None:
        """
        Args:
            clock: times the checks for an SDK, while there is none.
            provider: None: the one the application has set up, whenever it does so.
            propagator: how contexts are written into headers; None: the application's (W3C trace context by default).
            item_spans: also one span per item and transport call, in the trace of the item's creation.
        """
        self._clock = clock
        self._provider = provider
        self._propagator = propagator
        self._item_spans = item_spans
        self._cached: tuple[trace.TracerProvider, trace.Tracer] | None = None
        self._idle = False
        """Whether the last check found no SDK."""
        self._look_again = 0.0
        """When to check for an SDK next, in monotonic seconds: a check costs as much as all other checks of an item."""

    def inject(self, headers: dict[str, str]) -> dict[str, str]:
        if not otel_context.get_current():
            return headers
        propagator = self._textmap()
        # They may come from an HTTP request, where upper and lower case are the same. What is no text has not been refused yet.
        given = {str(name).lower() for name in headers}
        if not given.isdisjoint(propagator.fields - _BESIDE_THE_TRACE):
            return headers
        carrier: dict[str, str] = {}
        propagator.inject(carrier)
        added = {name: value for name, value in carrier.items() if name.lower() not in given}
        if not added:
            return headers
        # What no database stores is the propagator's fault, and must not become the creation's.
        json_text(added)
        return {**added, **headers}

    def creating(self, box: Box | JobBox, count: int) -> AbstractContextManager[object]:
        tracer = self._tracer()
        if tracer is None:
            return _NOTHING
        attributes = _attributes("create", box, count)
        return tracer.start_as_current_span(f"create {box.name}", kind=SpanKind.PRODUCER, attributes=attributes)

    def polling(self, box: Box, partition: int) -> AbstractContextManager[object]:
        tracer = self._tracer()
        if tracer is None:
            return _NOTHING
        attributes = _attributes("receive", box) | {
            "messaging.operation.name": "poll",
            "messaging.destination.partition.id": str(partition),
        }
        return tracer.start_as_current_span(f"poll {box.name}", kind=SpanKind.CLIENT, attributes=attributes)

    def processing(self, box: Box, items: Sequence[Item]) -> AbstractContextManager[object]:
        tracer = self._tracer()
        if tracer is None:
            return _NOTHING
        parent, links = _origin(_distinct(self._context(item) for item in items))
        return tracer.start_as_current_span(
            f"process {box.name}",
            context=parent,
            kind=SpanKind.CONSUMER,
            links=links,
            attributes=_attributes("process", box, len(items)) | _message_id(items),
        )

    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> AbstractContextManager[object]:
        # As ``sending_each``.
        tracer = None if self._idle else self._tracer()
        if tracer is None:
            return _NOTHING
        return self._sending(tracer, box, transport, items)

    def sending_each(self, box: Box, transport: str) -> Around | None:
        # Called within a batch for which the SDK has just been checked.
        tracer = None if self._idle else self._tracer()
        if tracer is None:
            return None
        return lambda item: self._sending(tracer, box, transport, (item,))

    @contextmanager
    def _sending(self, tracer: trace.Tracer, box: Box, transport: str, items: Sequence[Item]) -> Iterator[None]:
        attributes = _attributes("send", box, len(items)) | _message_id(items) | {"boxengine.transport": transport}
        # CLIENT, because the context that receivers will see is that of the creation.
        with tracer.start_as_current_span(f"send {box.name}", kind=SpanKind.CLIENT, attributes=attributes) as span:
            try:
                with ExitStack() as stack:
                    if self._item_spans:
                        for item in items:
                            stack.enter_context(self._item_span(tracer, box, transport, item, span))
                    yield
            except NotTaken as refused:  # caught here, so that the span has no exception that nobody raised
                span.set_status(Status(StatusCode.ERROR, str(refused)))

    def running(self, box: JobBox, jobs: Sequence[ClaimedJob]) -> AbstractContextManager[object]:
        tracer = self._tracer()
        return _NOTHING if tracer is None else self._running(tracer, box, jobs)

    @contextmanager
    def _running(self, tracer: trace.Tracer, box: JobBox, jobs: Sequence[ClaimedJob]) -> Iterator[None]:
        parent, links = _origin(_distinct(named_context(job.trace_context, self._textmap()) for job in jobs))
        attributes = _attributes("process", box, len(jobs)) | {"boxengine.job.task": jobs[0].task}
        if len(jobs) == 1:
            attributes |= {"messaging.message.id": str(jobs[0].id), "boxengine.job.attempt": jobs[0].attempt}
        # A span with a parent is current in the context that was current before, which lacks the creation's baggage.
        with (
            _attached(otel_context.get_current() if parent is None else parent),
            tracer.start_as_current_span(
                f"process {box.name}", kind=SpanKind.CONSUMER, links=links, attributes=attributes
            ) as span,
        ):
            try:
                yield
            except AttemptsFailed as failed:  # caught here, for the same reason
                span.set_status(Status(StatusCode.ERROR, str(failed)))

    @contextmanager
    def _item_span(self, tracer: trace.Tracer, box: Box, transport: str, item: Item, batch: Span) -> Iterator[None]:
        span = tracer.start_span(
            f"deliver {box.name}",
            context=self._context(item),
            kind=SpanKind.CONSUMER,
            links=[Link(batch.get_span_context())],
            attributes=_attributes("process", box) | _message_id([item]) | {"boxengine.transport": transport},
        )
        try:
            yield
        except NotTaken as refused:
            if item.id in refused.reasons:
                span.set_status(Status(StatusCode.ERROR, refused.reasons[item.id]))
            raise
        except Exception as error:
            span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
            raise
        finally:
            span.end()

    def _tracer(self) -> trace.Tracer | None:
        if self._idle and self._clock.monotonic() < self._look_again:
            return None
        provider = self._provider or trace.get_tracer_provider()
        self._idle = isinstance(provider, ProxyTracerProvider | NoOpTracerProvider)
        if self._idle:
            self._look_again = self._clock.monotonic() + LOOK_EVERY
            return None
        cached = self._cached
        if cached is None or cached[0] is not provider:
            cached = self._cached = (provider, provider.get_tracer(INSTRUMENTATION))
        return cached[1]

    def _textmap(self) -> TextMapPropagator:
        return self._propagator or propagate.get_global_textmap()

    def _context(self, item: Item) -> Context | None:
        return carried_context(item, self._textmap())


def carried_context(item: Item, propagator: TextMapPropagator) -> Context | None:
    """The context of the item's creation, if its headers carry one."""
    return named_context(_own_headers(item, propagator.fields), propagator)


def named_context(headers: Mapping[str, str] | None, propagator: TextMapPropagator) -> Context | None:
    """The context that these headers name, if they name a trace."""
    if not headers:
        return None
    context = propagator.extract(headers, context=Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def _distinct(contexts: Iterable[Context | None]) -> list[Context]:
    """Without those of the same creation, which shares one."""
    found: dict[tuple[int, int], Context] = {}
    for context in contexts:
        if context is not None:
            carried = trace.get_current_span(context).get_span_context()
            found.setdefault((carried.trace_id, carried.span_id), context)
            if len(found) == MOST_LINKS:
                break
    return list(found.values())


def _origin(contexts: Sequence[Context]) -> tuple[Context | None, list[Link]]:
    """The parent and the links of a span: what one creation made makes one trace with it; what several made links to all."""
    parent = contexts[0] if len(contexts) == 1 else None
    return parent, [Link(trace.get_current_span(each).get_span_context()) for each in contexts]


@contextmanager
def within(headers: Mapping[str, str]) -> Iterator[None]:
    """Makes the context that these headers name the current one; if they name none, or a propagator raises, nothing changes."""
    context = otel_context.get_current()
    with suppress(Exception):  # of a propagator
        context = propagate.extract(headers, context=context)
    with _attached(context):
        yield


def called_with(headers: Mapping[str, str]) -> AbstractContextManager[object]:
    """While a request with these headers is answered, what it makes continues the caller's trace.

    An application that traces its requests has a span of its own for this one, below the caller's.
    """
    return _NOTHING if trace.get_current_span().get_span_context().is_valid else within(headers)


@contextmanager
def _attached(context: Context) -> Iterator[None]:
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


def _own_headers(item: Item, fields: set[str]) -> dict[str, str]:
    """The item's headers, names in lower case; an item that cannot have one of the fields is not parsed."""
    options = item.raw_options
    if not options:
        return {}
    if isinstance(options, str):
        lowered = options.lower()
        if not any(field in lowered for field in fields):
            return {}
        try:
            options = json.loads(options)
        except (ValueError, RecursionError):
            return {}  # the transport will report it
    headers = options.get("headers") if isinstance(options, Mapping) else None
    return {str(name).lower(): str(value) for name, value in headers.items()} if isinstance(headers, Mapping) else {}


def _attributes(operation: str, box: Box | JobBox, count: int | None = None) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "messaging.system": "boxengine",
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": box.name,
        "boxengine.box.type": box.type.value if isinstance(box, Box) else "job",
    }
    if count is not None and count != 1:
        attributes["messaging.batch.message_count"] = count
    return attributes


def _message_id(items: Sequence[Item]) -> dict[str, AttributeValue]:
    return {"messaging.message.id": items[0].uuid} if len(items) == 1 else {}
