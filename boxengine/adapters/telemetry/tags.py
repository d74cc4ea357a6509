"""Tags of log lines: which box, bucket and item, or which job, a line is about, even if the code that logs it does not know.

The thread's context notes what it is working on; tags are made from that only when a line is really written.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from typing import NamedTuple

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator

from boxengine.adapters.telemetry.opentelemetry import carried_context, named_context, within
from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.jobs import ClaimedJob, JobBox
from boxengine.engine.observation import NullTracer
from boxengine.ports import Around

STANDARD = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime"})
"""Attributes that every record has; no tag may have such a name."""

MOST_BUCKETS = 20
"""Of one thread's work, named to people."""


class Work(NamedTuple):
    """What a thread is working on."""

    box: Box
    partition: int | None = None
    transport: str | None = None
    item: Item | None = None
    items: Sequence[Item] = ()
    """All of them; ``item`` where it is one."""

    def __str__(self) -> str:
        """For people: ``box orders, transport http, buckets 3 7, 20 items from 11 to 90``."""
        parts = [f"box {self.box.name}"]
        parts += [f"partition {self.partition}"] if self.partition is not None else []
        parts += [f"transport {self.transport}"] if self.transport is not None else []
        if self.items:
            buckets = sorted({item.bucket for item in self.items})
            more = f" and {len(buckets) - MOST_BUCKETS} more" if len(buckets) > MOST_BUCKETS else ""
            ids = [item.id for item in self.items]
            parts.append(f"buckets {' '.join(map(str, buckets[:MOST_BUCKETS]))}{more}")
            parts.append(f"item {ids[0]}" if len(ids) == 1 else f"{len(ids)} items from {min(ids)} to {max(ids)}")
        return ", ".join(parts)

    @property
    def tags(self) -> Mapping[str, object]:
        """For a line that is logged meanwhile; those that are None are left out."""
        tags: dict[str, object] = {"box": self.box.name, "partition": self.partition, "transport": self.transport}
        item = self.item
        if item is not None:
            tags |= {"bucket": item.bucket, "item": item.id, **item.log_details}
            tags |= _trace_of(lambda propagator: carried_context(item, propagator))
        return tags


class JobWork(NamedTuple):
    """The attempt at a job, or at all jobs of a batch, that a thread is working on."""

    box: JobBox
    jobs: Sequence[ClaimedJob]

    def __str__(self) -> str:
        """For people: ``box reports, task export, job 12, attempt 2``."""
        first = self.jobs[0]
        ids = sorted(job.id for job in self.jobs)
        which = (
            f"job {first.id}, attempt {first.attempt}"
            if len(ids) == 1
            else f"{len(ids)} jobs from {ids[0]} to {ids[-1]}"
        )
        return f"box {self.box.name}, task {first.task}, {which}"

    @property
    def tags(self) -> Mapping[str, object]:
        """For a line that is logged meanwhile."""
        first, *others = self.jobs
        tags: dict[str, object] = {"box": self.box.name, "task": first.task}
        if not others:
            tags |= {"job": first.id, "attempt": first.attempt}
            tags |= _trace_of(lambda propagator: named_context(first.trace_context, propagator))
        return tags


# A context variable must belong to the module. Its value belongs to the running thread or task.
_tags: ContextVar[Mapping[str, object] | None] = ContextVar("boxengine_log_tags", default=None)
_work: ContextVar[Work | JobWork | None] = ContextVar("boxengine_log_work", default=None)


@contextmanager
def bound(**tags: object) -> Iterator[None]:
    """Adds these tags to whatever this thread (or task) logs inside."""
    token = _tags.set({**(_tags.get() or {}), **tags})
    try:
        yield
    finally:
        _tags.reset(token)


@contextmanager
def following(headers: Mapping[str, str], **tags: object) -> Iterator[None]:
    """In a process that works for another one: lines get these tags, and spans belong to the trace that the headers name."""
    with within(headers), bound(**tags):
        yield


class TagFilter(logging.Filter):
    """Puts the tags in force on each record. Also for an application's own handlers."""

    def filter(self, record: logging.LogRecord) -> bool:
        known = record.__dict__
        for tags in (_tags.get() or {}, _tags_of_work()):
            for name, value in tags.items():
                known.setdefault(safe(name), value)
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            known.setdefault("trace_id", trace.format_trace_id(span.trace_id))
        return True


class LogTracer(NullTracer):
    """Not a trace: notes what each thread is working on, for the tags of log lines and for ``in_hand``."""

    def __init__(self) -> None:
        self._in_hand: dict[int, Work | JobWork] = {}

    def in_hand(self) -> dict[int, Work | JobWork]:
        """What each thread is working on, by its identifier. Any thread may call this."""
        return self._in_hand.copy()

    def polling(self, box: Box, partition: int) -> AbstractContextManager[object]:
        return _At(Work(box, partition=partition), self._in_hand)

    def processing(self, box: Box, items: Sequence[Item]) -> AbstractContextManager[object]:
        return _At(Work(box, None, None, None, items), self._in_hand)

    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> AbstractContextManager[object]:
        return _At(Work(box, None, transport, items[0] if len(items) == 1 else None, items), self._in_hand)

    def sending_each(self, box: Box, transport: str) -> Around:
        return _Each(box, transport, self._in_hand)

    def running(self, box: JobBox, jobs: Sequence[ClaimedJob]) -> AbstractContextManager[object]:
        return _At(JobWork(box, jobs), self._in_hand)


def safe(name: object) -> str:
    """The name of a tag, which must not hide an attribute that every record has."""
    return f"{name}_" if name in STANDARD else str(name)


class _At(AbstractContextManager[None]):
    """Around the work; a class, because one is made for each item that is sent by itself."""

    __slots__ = ("_before", "_in_hand", "_token", "_what")

    def __init__(self, what: Work | JobWork, in_hand: dict[int, Work | JobWork]) -> None:
        self._what = what
        self._in_hand = in_hand
        self._before: Work | JobWork | None = None
        self._token: Token[Work | JobWork | None] | None = None

    def __enter__(self) -> None:
        thread = threading.get_ident()
        self._before = self._in_hand.get(thread)
        self._in_hand[thread] = self._what
        self._token = _work.set(self._what)

    def __exit__(self, *_error: object) -> None:
        if self._token is None:
            return
        _work.reset(self._token)
        thread = threading.get_ident()
        if self._before is None:
            self._in_hand.pop(thread, None)
        else:
            self._in_hand[thread] = self._before


class _Each(AbstractContextManager[None]):
    """Around each of the items that one thread sends one by one: made once for all of them, and entered for each."""

    __slots__ = ("_before", "_box", "_in_hand", "_thread", "_token", "_transport", "_what")

    def __init__(self, box: Box, transport: str, in_hand: dict[int, Work | JobWork]) -> None:
        self._box = box
        self._transport = transport
        self._in_hand = in_hand
        self._thread = threading.get_ident()
        self._before = in_hand.get(self._thread)
        self._what: Work | None = None
        self._token: Token[Work | JobWork | None] | None = None

    def __call__(self, item: Item) -> AbstractContextManager[None]:
        # A new one for each item: what the transport starts meanwhile, a thread or a task, may keep it.
        self._what = Work(self._box, None, self._transport, item, (item,))
        return self

    def __enter__(self) -> None:
        if self._what is not None:
            self._in_hand[self._thread] = self._what
            self._token = _work.set(self._what)

    def __exit__(self, *_error: object) -> None:
        if self._token is not None:
            _work.reset(self._token)
        if self._before is None:
            self._in_hand.pop(self._thread, None)
        else:
            self._in_hand[self._thread] = self._before


def _tags_of_work() -> Mapping[str, object]:
    """Those of what the thread is working on."""
    work = _work.get()
    if work is None:
        return {}
    # A propagator logs headers that it does not understand, and a model's code may log, too. If those lines asked for the tags
    # again, that would never end, and the error would be the transport's that wrote the first line.
    token = _work.set(None)
    try:
        return {name: value for name, value in work.tags.items() if value is not None}
    finally:
        _work.reset(token)


def _trace_of(found: Callable[[TextMapPropagator], Context | None]) -> Mapping[str, object]:
    """The trace in which the item or job was created; the span at work may be that of a whole batch."""
    with contextlib.suppress(Exception):  # of a propagator: a log line must not fail a delivery
        named = found(propagate.get_global_textmap())
        if named is not None:
            return {"trace_id": trace.format_trace_id(trace.get_current_span(named).get_span_context().trace_id)}
    return {}
