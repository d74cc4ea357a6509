"""Structured logs: JSON lines for machines, short lines for people, both tagged with box, bucket, item and trace id.

Tags come from the ``extra=`` of a log call, and otherwise from the work that is noted in ``tags``: so a transport's own log
lines name their item, though the transport does nothing for it. Passwords are masked in everything that is logged.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from boxengine.adapters.telemetry.background import BackgroundHandler
from boxengine.adapters.telemetry.job_logs import log_jobs
from boxengine.adapters.telemetry.tags import STANDARD, TagFilter, safe
from boxengine.domain.box import Box
from boxengine.domain.item import Item, Status, rfc3339
from boxengine.domain.masking import masked, masked_text
from boxengine.domain.outcome import Settlement
from boxengine.ports import events
from boxengine.ports.jobs import JobEnded, JobLoad, JobsReaped

Format = Literal["auto", "json", "text"]
logger = logging.getLogger(__name__)


LONGEST_TEXT = 10_000
"""Characters kept of a message, an error or a tag. Some libraries put a whole request or response into an error's text."""
LONGEST_TRACEBACK = 30_000
DEEPEST = 20
"""Levels shown of a nested tag: one that contains itself would never end."""


class BoxHandler(logging.StreamHandler[TextIO]):
    """The handler that ``configure`` sets for a stream, so that configuring twice does not write twice."""


class ErrorHandler(BackgroundHandler):
    """The handler that ``configure`` sets for standard error."""


def _handler(stream: TextIO | None) -> logging.Handler:
    if stream is not None:
        return BoxHandler(stream)
    try:
        return ErrorHandler(sys.stderr.fileno())
    except (AttributeError, OSError):
        # Replaced by something without a file, as tests and notebooks do, or closed.
        return BoxHandler(sys.stderr)


def configure(
    *,
    format: Format = "auto",  # noqa: A002 - the option's name
    level: int | str = "INFO",
    stream: TextIO | None = None,
    process: bool = False,
) -> logging.Handler:
    """Sends the ``boxengine`` logger tree to ``stream``, in place of what an earlier call set.

    Args:
        format: ``auto``: text where the stream is a terminal, else JSON.
        level: name or number.
        stream: None: standard error.
        process: also handles the lines of all other loggers, so that a transport's own lines are seen and tagged, unless
            the application has given the root logger handlers of its own.
    """
    handler, shown_on = _handler(stream), stream or sys.stderr
    text = format == "text" or (format == "auto" and shown_on is not None and shown_on.isatty())
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    handler.addFilter(TagFilter())
    root, ours = logging.getLogger(), logging.getLogger("boxengine")
    for each in (root, ours):
        for old in [known for known in each.handlers if isinstance(known, BoxHandler | ErrorHandler)]:
            each.removeHandler(old)
            if isinstance(old, ErrorHandler):
                old.close()
    whole = process and not root.handlers
    chosen = root if whole else ours
    chosen.addHandler(handler)
    chosen.setLevel(level)
    ours.setLevel(level)
    ours.propagate = whole
    return handler


def in_force() -> tuple[Format, int] | None:
    """What ``configure`` set last: format and level. None: the application has logs of its own."""
    for each in (logging.getLogger(), logging.getLogger("boxengine")):
        for handler in each.handlers:
            if isinstance(handler, BoxHandler | ErrorHandler):
                return "text" if isinstance(handler.formatter, TextFormatter) else "json", each.level
    return None


class JsonFormatter(logging.Formatter):
    """One object per line: ``time``, ``level``, ``logger``, ``message``, the tags, ``error`` and ``traceback`` if any."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shown(record.getMessage()),
            **{name: _tag(name, value) for name, value in _extra(record).items()},
        }
        if record.exc_info and record.exc_info[0]:
            fields["error"] = _shown(f"{record.exc_info[0].__name__}: {record.exc_info[1]}")
            fields["traceback"] = _shown(self.formatException(record.exc_info), LONGEST_TRACEBACK)
        return json.dumps(fields, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """``12:00:01 WARNING item failed: ... box=order_outbox_item item=7``, in local time; a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        tags = "".join(f" {name}={_tag(name, value)}" for name, value in _extra(record).items())
        line = f"{time} {record.levelname:<7} {_shown(record.getMessage())}{masked_text(tags)}"
        if record.exc_info and record.exc_info[0]:
            line += "\n" + _shown(self.formatException(record.exc_info), LONGEST_TRACEBACK)
        return line


def _shown(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text, without passwords and cut to ``longest`` characters."""
    # Cut twice: a cut in the middle of a URL might leave part of a password that is not recognised as one.
    known = masked_text(text[: 2 * longest])
    return known if len(known) <= longest else f"{known[:longest]}... (cut, {len(text):,} characters)"


def _tag(name: str, value: object) -> object:
    known = _without_secrets((name,), value)
    if known is None or isinstance(known, bool | int | float):
        return known
    text = known if isinstance(known, str) else str(known)
    return known if len(text) <= LONGEST_TEXT else _shown(text)


def _without_secrets(path: tuple[str | int, ...], value: object) -> object:
    """The value as JSON can hold it, masked all the way down; of what JSON does not know, its text."""
    known = masked(path, value)
    if known is None or isinstance(known, str | bool | int | float):
        return known
    if isinstance(known, Mapping | list | tuple) and len(path) > DEEPEST:
        return "..."
    if isinstance(known, Mapping):
        return {masked_text(str(key)): _without_secrets((*path, str(key)), each) for key, each in known.items()}
    if isinstance(known, list | tuple):
        return [_without_secrets((*path, place), each) for place, each in enumerate(known)]
    return masked_text(str(known))


def report(error: BaseException | str, /, **context: Any) -> None:
    """The default error tracker: one line at level error, with the traceback if there is one."""
    tags = {safe(name): value for name, value in context.items()}
    if isinstance(error, BaseException):
        trail = (type(error), error, error.__traceback__)
        logger.error("%s: %s", type(error).__name__, error, exc_info=trail, extra=tags)
    else:
        logger.error("%s", error, extra=tags)


class LogObserver:
    """Logs what a person would want to read: batches at debug, failures at warning, outages once."""

    def __init__(self, *, most_items: int = 5) -> None:
        """``most_items``: how many items of one batch get a line of their own; the others are counted."""
        self._most_items = most_items
        self._lock = threading.Lock()
        self._outages: dict[str, list[str]] = {}
        """What does not work, by reason; only the first of each reason has been logged."""
        self._held_back: set[tuple[str, str]] = set()
        """Boxes of which a poll was held back, each with the reason: it may be meant, so it is logged once."""

    def see(self, event: events.Event) -> None:  # noqa: C901, PLR0912 - one branch for each event that is told
        match event:
            case events.CircuitChanged():
                self._circuit_changed(event)
            case events.Settled():
                self._settled(event)
            case events.DiscardedByHand(box=box, ids=ids):
                shown = ", ".join(map(str, sorted(ids)[: self._most_items]))
                ours = {"box": box.name}
                if len(ids) == 1:
                    logger.warning("item %s discarded by hand", shown, extra=ours)
                else:
                    logger.warning("%d items discarded by hand, the first: %s", len(ids), shown, extra=ours)
            case events.OrderViolated(box=box, items=items):
                self._warn_of(
                    box,
                    items,
                    one="item %s of key %s was delivered after a later one of its key: ",
                    many="%d items were delivered after a later one of their key, the first is item %s of key %s: ",
                    advice="are writers of one key serialised? (docs/databases.md)",
                )
            case events.KeptBack(box=box, items=items):
                self._warn_of(
                    box,
                    items,
                    one="a middleware did not call call_next() for item %s of key %s, which stays pending",
                    many="a middleware did not call call_next() for %d items: they stay pending, the first is item %s of key %s",
                    advice="; an async def middleware has to await it",
                )
            case events.FetchFailed(box=box):
                # At debug: every try reports it, while the outage behind it is logged once, as an outage.
                logger.debug("items could not be read or recorded: %s", event.reason, extra={"box": box.name})
            case events.RetentionHeld(box=box, age=age):
                limit = box.retention.at_most
                logger.warning(
                    "this subscription holds back retention: it has not delivered an item of %s, which is %s old%s",
                    box.source.name,
                    age,
                    "" if limit is None else f"; those older than {limit} are deleted undelivered (retain_at_most)",
                    extra={"box": box.name},
                )
            case events.ForeignJobs(box=box, elements=elements):
                shown, ours = elements[0][:80].decode(errors="backslashreplace"), {"box": box.name}
                if len(elements) == 1:
                    logger.warning(
                        "the queue held an element that is not a job of this box; dropped it: %r", shown, extra=ours
                    )
                else:
                    text = "the queue held %d elements that are not jobs of this box; dropped them, the first: %r"
                    logger.warning(text, len(elements), shown, extra=ours)
            case events.NamesTwice(worker=other, boxes=boxes):
                logger.warning(
                    "worker %s on host %s uses the same Redis for boxes of these names in another database: %s. Each takes the "
                    "other's jobs, leases and pauses; give each database a redis.prefix of its own",
                    other.pid,
                    other.host,
                    ", ".join(boxes),
                )
            case events.Deleted(box=box):
                logger.debug("retention deleted %d rows in %.3f s", event.rows, event.seconds, extra={"box": box.name})
            case events.OutageBegan():
                self._outage_began(event)
            case events.OutageEnded():
                self._outage_ended(event)
            case events.CoordinatorSlow():
                logger.warning(
                    "Redis: answers after %.1f s; leases last %.0f s, so the buckets of a worker that dies wait that long",
                    event.seconds,
                    event.lease.total_seconds(),
                )
            case events.CoordinatorQuick():
                lease = event.lease.total_seconds()
                logger.info("Redis: answers after %.1f s again; leases last %.0f s", event.seconds, lease)
            case events.Throttled(box=box, held_back=str() as held_back):
                self._poll_held_back(box, held_back)
            case JobEnded() | JobsReaped() | JobLoad():
                log_jobs(event)
            case _:
                pass  # numbers, which metrics show

    def _circuit_changed(self, event: events.CircuitChanged) -> None:
        circuit, tags = event.circuit, {"box": event.box.name, "transport": event.transport}
        if circuit is None:
            logger.info("circuit closed: items go out again", extra=tags)
        else:
            when = "when it comes back" if circuit.next_try is None else f"after {rfc3339(circuit.next_try)}"
            logger.warning("circuit open: %s; next try %s", circuit.reason, when, extra=tags)

    def _settled(self, event: events.Settled) -> None:
        box, items, settlement = event.box, event.items, event.settlement
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "batch settled: %d delivered, %d failed, %d discarded of %d in %.3f s",
                len(settlement.delivered),
                len(settlement.failed),
                len(settlement.discarded),
                len(items),
                event.seconds,
                extra={"box": box.name},
            )
        if settlement.failed:
            self._failures(box, items, settlement)
        if settlement.discarded:
            self._discards(box, items, settlement)

    def _warn_of(self, box: Box, items: Sequence[Item], *, one: str, many: str, advice: str) -> None:
        first = items[0]
        tags = _tags_of(box, first.id, first)
        if len(items) == 1:
            logger.warning(one + advice, first.id, first.event_key, extra=tags)
        else:
            logger.warning(many + advice, len(items), first.id, first.event_key, extra=tags)

    def _poll_held_back(self, box: Box, reason: str) -> None:
        with self._lock:
            if (box.name, reason) in self._held_back:
                return
            self._held_back.add((box.name, reason))
        logger.warning(
            "%s: items wait until it lets a poll through; an async def middleware has to await it",
            reason,
            extra={"box": box.name},
        )

    def _outage_began(self, event: events.OutageBegan) -> None:
        with self._lock:
            met = self._outages.setdefault(event.reason, [])
            met.append(event.what)
            if len(met) > 1:
                return  # a server that is down stops several loops, but is logged once
        logger.warning("%s does not work; retrying with growing pauses: %s", event.what, event.reason)

    def _outage_ended(self, event: events.OutageEnded) -> None:
        what = event.what
        with self._lock:
            reason = next((reason for reason, met in self._outages.items() if what in met), None)
            met = [] if reason is None else self._outages[reason]
            told = reason is None or met[0] == what
            if reason is not None:
                met.remove(what)
                if not met:
                    del self._outages[reason]
            left = ", ".join(met)
        if told:
            logger.info("%s works again, after %.1f s%s", what, event.seconds, f"; not yet: {left}" if left else "")

    def _discards(self, box: Box, items: Sequence[Item], settlement: Settlement) -> None:
        by_id = {item.id: item for item in items}
        for discard in settlement.discarded[: self._most_items]:
            reason = discard.error_log.partition("\n")[0].partition(" ")[2][:300]
            tags = _tags_of(box, discard.id, by_id.get(discard.id)) | {"cause": str(discard.cause)}
            logger.warning("item %s", reason, extra=tags)
        more = len(settlement.discarded) - self._most_items
        if more > 0:
            logger.warning("%d more items of this batch discarded", more, extra={"box": box.name})

    def _failures(self, box: Box, items: Sequence[Item], settlement: Settlement) -> None:
        by_id = {item.id: item for item in items}
        for attempt in settlement.failed[: self._most_items]:
            outcome = "failed for good" if attempt.status is Status.FAILED else "will be tried again"
            logger.warning(
                "item %s (attempt %d): %s",
                outcome,
                attempt.errors_count,
                attempt.error_log.strip().partition("\n")[0][:300],
                extra=_tags_of(box, attempt.id, by_id.get(attempt.id)),
            )
        more = len(settlement.failed) - self._most_items
        if more > 0:
            logger.warning("%d more items of this batch failed", more, extra={"box": box.name})


def _tags_of(box: Box, item_id: int, item: Item | None) -> dict[str, object]:
    details = item.log_details if item is not None else {}
    tags = {safe(name): value for name, value in details.items()}
    return tags | {"box": box.name, "bucket": item.bucket if item is not None else None, "item": item_id}


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in STANDARD and value is not None}
