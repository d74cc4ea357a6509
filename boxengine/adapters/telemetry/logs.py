"""Structured logs: JSON lines for machines, short lines for people, both tagged with box, bucket, item and trace id.

Tags come from ``extra=`` where a line is logged, and from the context (``bound``) where it is not at hand:
a transport's own log lines carry the item they are about without knowing of it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from opentelemetry import trace

from boxengine.domain.box import Box
from boxengine.domain.item import Item, Status, rfc3339
from boxengine.domain.outcome import Settlement
from boxengine.engine.observation import NullObserver, NullTracer

Format = Literal["auto", "json", "human"]
logger = logging.getLogger(__name__)

# A context variable works only as a module's own: what it holds belongs to the running thread or task.
_tags: ContextVar[Mapping[str, object] | None] = ContextVar("boxengine_log_tags", default=None)
_STANDARD = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime"})


class BoxHandler(logging.StreamHandler[TextIO]):
    """The handler that ``configure`` sets, so that configuring twice does not write twice."""


def configure(
    *,
    format: Format = "auto",  # noqa: A002 - the option's name
    level: int | str = "INFO",
    stream: TextIO | None = None,
) -> logging.Handler:
    """Sends the ``boxengine`` logger tree to ``stream``, in place of what an earlier call set.

    Args:
        format: ``auto``: human where the stream is a terminal, else JSON.
        level: name or number.
        stream: None: standard error.
    """
    handler = BoxHandler(stream or sys.stderr)
    human = format == "human" or (format == "auto" and handler.stream.isatty())
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    handler.addFilter(TagFilter())
    root = logging.getLogger("boxengine")
    for old in [each for each in root.handlers if isinstance(each, BoxHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    root.propagate = False
    return handler


@contextmanager
def bound(**tags: object) -> Iterator[None]:
    """What this thread (or task) logs inside carries these tags as well."""
    token = _tags.set({**(_tags.get() or {}), **tags})
    try:
        yield
    finally:
        _tags.reset(token)


class TagFilter(logging.Filter):
    """Puts the tags in force on each record. Also for an application's own handlers."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in (_tags.get() or {}).items():
            if name not in record.__dict__:
                setattr(record, name, value)
        span = trace.get_current_span().get_span_context()
        if span.is_valid and "trace_id" not in record.__dict__:
            record.trace_id = trace.format_trace_id(span.trace_id)
        return True


class JsonFormatter(logging.Formatter):
    """One object per line: ``time``, ``level``, ``logger``, ``message``, the tags, ``error`` and ``traceback`` if any."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info and record.exc_info[0]:
            fields["error"] = f"{record.exc_info[0].__name__}: {record.exc_info[1]}"
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


class HumanFormatter(logging.Formatter):
    """``12:00:01 WARNING item failed: ... box=order_outbox_item item=7``, in local time; a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        tags = "".join(f" {name}={value}" for name, value in _extra(record).items())
        line = f"{time} {record.levelname:<7} {record.getMessage()}{tags}"
        if record.exc_info and record.exc_info[0]:
            line += "\n" + self.formatException(record.exc_info)
        return line


def report(error: BaseException | str, /, **context: Any) -> None:
    """The default error tracker: one line at level error, with the traceback where there is one."""
    tags = {f"{name}_" if name in _STANDARD else name: value for name, value in context.items()}
    if isinstance(error, BaseException):
        trail = (type(error), error, error.__traceback__)
        logger.error("%s: %s", type(error).__name__, error, exc_info=trail, extra=tags)
    else:
        logger.error("%s", error, extra=tags)


class LogObserver(NullObserver):
    """Writes down what a person would want to read: batches at debug, failures at warning, outages once."""

    def __init__(self, *, most_items: int = 5) -> None:
        """``most_items``: so many items of one batch get a line of their own; the others are counted."""
        self._most_items = most_items

    def settled(self, box: Box, items: Sequence[Item], settlement: Settlement, *, seconds: float) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "batch settled: %d delivered, %d failed, %d discarded of %d in %.3f s",
                len(settlement.delivered),
                len(settlement.failed),
                len(settlement.discarded),
                len(items),
                seconds,
                extra={"box": box.name},
            )
        if settlement.failed:
            self._failures(box, items, settlement)

    def fetch_failed(self, box: Box, reason: str) -> None:
        # At debug: it is told at every try, and the outage behind it once, as an outage.
        logger.debug("items could not be read or recorded: %s", reason, extra={"box": box.name})

    def deleted(self, box: Box, *, rows: int, seconds: float) -> None:
        logger.debug("retention deleted %d rows in %.3f s", rows, seconds, extra={"box": box.name})

    def outage(self, what: str, reason: str) -> None:
        logger.warning("%s does not work, tried again with growing pauses: %s", what, reason)

    def recovered(self, what: str, *, seconds: float) -> None:
        logger.info("%s works again, after %.1f s", what, seconds)

    def _failures(self, box: Box, items: Sequence[Item], settlement: Settlement) -> None:
        buckets = {item.id: item.bucket for item in items}
        for attempt in settlement.failed[: self._most_items]:
            outcome = "failed for good" if attempt.status is Status.FAILED else "will be tried again"
            logger.warning(
                "item %s (attempt %d): %s",
                outcome,
                attempt.errors_count,
                attempt.error_log.strip().partition("\n")[0][:300],
                extra={"box": box.name, "bucket": buckets.get(attempt.id), "item": attempt.id},
            )
        more = len(settlement.failed) - self._most_items
        if more > 0:
            logger.warning("%d more items of this batch failed", more, extra={"box": box.name})


class LogTracer(NullTracer):
    """Not a trace: tags what is logged while a batch, or one item, is at work."""

    def polling(self, box: Box, partition: int) -> AbstractContextManager[object]:
        return bound(box=box.name, partition=partition)

    def processing(self, box: Box, items: Sequence[Item]) -> AbstractContextManager[object]:  # noqa: ARG002 - the port's shape
        return bound(box=box.name)

    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> AbstractContextManager[object]:
        if len(items) == 1:
            return bound(box=box.name, transport=transport, bucket=items[0].bucket, item=items[0].id)
        return bound(box=box.name, transport=transport)


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD and value is not None}
