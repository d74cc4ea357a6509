"""What works but is probably not meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

from boxengine.domain import retry
from boxengine.domain.box import StrictOrder
from boxengine.errors import Problem
from boxengine.settings import drivers
from boxengine.settings.arguments import Misconfigured, parsed
from boxengine.settings.boxes import BoxSettings, InboxSettings
from boxengine.settings.diagnosis import Finding
from boxengine.settings.durations import format_seconds
from boxengine.settings.loading import problems_of
from boxengine.settings.origin import Path
from boxengine.settings.rules import boxes_with_paths
from boxengine.settings.schema import ConsoleSettings, Settings
from boxengine.settings.transport_names import KAFKA, short_name
from boxengine.settings.values.times import Seconds

_LIMITS = {"http": ("timeout",), "redis_stream": ("timeout",), KAFKA: ("timeout", "delivery_timeout")}
"""By built-in transport, the arguments that say how long a call may take."""


def notices(settings: Settings) -> list[Problem]:
    """All doubts about the settings; to be logged as warnings at start."""
    found = [*_no_boxes(settings), *_console(settings.console)]
    for path, _, box in boxes_with_paths(settings):
        found += _box(path, box, batch=settings.processor.general_timeout)
    found += _jobs(settings)
    return [*drivers.drivers_of_applications(settings), *problems_of(found, settings.origin)]


def _no_boxes(settings: Settings) -> Iterator[Finding]:
    if not (settings.boxes or settings.job_items):
        message = (
            "there are none, so a worker would not start; "
            "a section takes nothing over from default unless it says <<: *default"
        )
        yield Finding(("outbox_items",), message)


def _console(console: ConsoleSettings) -> Iterator[Finding]:
    if console.read_token is not None and console.read_token == console.operate_token:
        message = "is the same as operate_token: whoever has it may change everything"
        yield Finding(("console", "read_token"), message)
    if console.trace_url is not None and "{trace_id}" not in console.trace_url:
        yield Finding(("console", "trace_url"), "has no {trace_id}: the links of all items lead to one page")


def _box(path: Path, box: BoxSettings, *, batch: timedelta) -> Iterator[Finding]:
    if box.partition_size is not None:
        yield Finding((*path, "partition_size"), "ignored: it belongs to the old worker; see poller.concurrency")
    if box.strict_order is StrictOrder.BUCKET and box.max_retries is not None:
        message = "ignored: under strict_order an item is retried without end; strict_order: key has a limit"
        yield Finding((*path, "max_retries"), message)
    if not box.transports:
        yield Finding((*path, "transports"), "there are none: every item of this box will fail")
    yield from _limits_that_come_too_late((*path, "transports"), box, batch)
    yield from _looks_for_what_is_gone(path, box)
    if box.max_retries and box.retry_strategies and set(box.retry_strategies) <= retry.READING_KEYS:
        message = (
            "none of them pauses: retries follow each other at once; put exponential_backoff first, or say no_delay"
        )
        yield Finding((*path, "retry_strategies"), message)


def _limits_that_come_too_late(path: Path, box: BoxSettings, batch: timedelta) -> Iterator[Finding]:
    for key, transport in box.transports.items():
        for argument in _LIMITS.get(short_name(transport.class_name), ()):
            with suppress(Misconfigured):  # which is reported elsewhere
                longest = parsed(argument, transport.arguments.get(argument, 0), Seconds)
                if longest >= batch:
                    message = (
                        f"{format_seconds(longest)} is not less than processor.general_timeout ({format_seconds(batch)}): "
                        "a batch that takes so long is not recorded, and its items are sent again and again"
                    )
                    yield Finding((*path, int(key) if key.isdecimal() else key, argument), message)


def _jobs(settings: Settings) -> Iterator[Finding]:
    for name, box in settings.job_items.items():
        if not box.tasks:
            yield Finding(("job_items", name, "tasks"), "there are none: no job can be created in this box")


def _looks_for_what_is_gone(path: Path, box: BoxSettings) -> Iterator[Finding]:
    if box.delivered_retention:
        return
    key = (*path, "retention" if box.retention_delivered_items is None else "retention_delivered_items")
    for name in sorted(retry.READING_KEYS.intersection(box.strategies)):
        message = f"delivered items are deleted at once, so {name} finds no later one of a key, and discards nothing"
        yield Finding(key, message)
    if isinstance(box, InboxSettings) and box.source is not None:
        message = (
            "a message is recognised by its item, which is deleted once it is delivered: if Kafka gives the message out again, "
            "it is delivered again; expected a time in which that may happen, such as P1D"
        )
        yield Finding(key, message)
