"""Input about long jobs, from people and programs: new jobs and searches."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from boxengine.domain.jobs import JobState
from boxengine.ports.people.jobs import JobSearch
from boxengine.web.console.parsing import BadInput, id_of, ids_of, moment_of, several, text_of

LONGEST_DELAY = timedelta(days=3650)
LONGEST_LEASE = timedelta(days=365)
NEW_JOB = (
    "task",
    "args",
    "idempotency_key",
    "lock_key",
    "partition_key",
    "consumer_group",
    "priority",
    "available_at",
    "delay",
    "max_attempts",
    "lease_ttl",
    "after",
    "after_failure",
)
"""The fields that describe a new job."""
SEARCH_NAMES = ("status", "id", "task", "lock_key", "idempotency_key", "error", "from", "to")


def attributes_of(sent: Mapping[str, Any], queue: str) -> dict[str, Any]:
    """The attributes of a new job, as ``create_job`` takes them; for those left out the box's defaults apply.

    Args:
        queue: the box's name in ids.
    """
    task = text_of("task", sent.get("task"))
    if task is None:
        raise BadInput("task: expected the name of a task")
    found: dict[str, Any] = {"task": task, "args": _args(sent.get("args"))}
    found |= {name: text_of(name, sent.get(name)) for name in ("idempotency_key", "lock_key", "consumer_group")}
    found["partition_key"] = text_of("partition_key", sent.get("partition_key")) or ""
    found["available_at"] = _moment(sent.get("available_at"))
    found["delay"] = _seconds("delay", sent.get("delay"), LONGEST_DELAY)
    found["lease_ttl"] = _seconds("lease_ttl", sent.get("lease_ttl"), LONGEST_LEASE)
    found["after"] = _after(sent.get("after"), queue)
    found["after_failure"] = text_of("after_failure", sent.get("after_failure"))
    if sent.get("priority") is not None:
        found["priority"] = sent["priority"]
    return found | {"max_attempts": sent.get("max_attempts")}


def _after(given: Any, queue: str) -> list[int]:
    """Ids as this API gives them, or plain numbers."""
    if given is None:
        return []
    if not isinstance(given, list):
        raise BadInput(f"after: expected a list of jobs' ids such as {queue}:42")
    found = []
    for each in given:
        number = id_of("after", str(each).removeprefix(f"{queue}:"))
        if number is None or isinstance(each, bool):
            raise BadInput(f"after: expected jobs' ids such as {queue}:42, all of the same box")
        found.append(number)
    return found


def _args(given: Any) -> Any:
    try:
        json.dumps(given, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        raise BadInput("args: holds a character that no database keeps, or too many levels") from error
    return given


def _moment(given: Any) -> datetime | None:
    """Parses ISO 8601; a text without a zone is UTC."""
    text = text_of("available_at", given)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadInput("available_at: expected a moment such as 2026-01-31T12:00Z") from error


def _seconds(name: str, given: Any, most: timedelta) -> float | None:
    if given is None:
        return None
    largest = most.total_seconds()
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= largest or math.isnan(given):
        raise BadInput(f"{name}: expected seconds from 0 to {largest:.0f}")
    return given


def search_of(given: Mapping[str, Any], *, now: datetime) -> JobSearch:
    """The search in a query, a form or a JSON object; empty texts do not restrict."""
    return JobSearch(
        states=_states(given.get("status")),
        ids=ids_of(given.get("id")),
        task=text_of("task", given.get("task")),
        lock_key=text_of("lock_key", given.get("lock_key")),
        idempotency_key=text_of("idempotency_key", given.get("idempotency_key")),
        error=text_of("error", given.get("error")),
        created_from=moment_of("from", given.get("from"), now=now),
        created_before=moment_of("to", given.get("to"), now=now),
    )


def _states(given: Any) -> frozenset[JobState]:
    names = several("status", given)
    for name in names:
        if name not in set(JobState):
            raise BadInput(f"status: expected {', '.join(JobState)}")
    return frozenset(map(JobState, names))
