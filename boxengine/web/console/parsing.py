"""Input from people and programs: every value is bounded, and every error is a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from boxengine.domain.item import Status, rfc3339
from boxengine.domain.new_values import UNSTORABLE
from boxengine.ports import ItemFilter
from boxengine.ports.people.inspection import Towards
from boxengine.settings.durations import parse

LARGEST_ID = 2**63 - 1
LONGEST_TEXT = 255
MOST_IDS = 1_000
PAGE, LARGEST_PAGE = 50, 200
FILTER_NAMES = ("status", "id", "key", "event_name", "uuid", "error", "from", "to")
PAGE_NAMES = ("before", "after", "limit")


class BadInput(ValueError):
    """An input is invalid; the message says what is expected."""


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is wanted."""

    start: int | None
    towards: Towards
    limit: int


def known_only(names: Iterable[str], known: Sequence[str]) -> None:
    """Raises ``BadInput`` for an unknown name."""
    for name in names:
        if name not in known:
            raise BadInput(f"{name[:40]!r} is not known here; known: {', '.join(known)}")


def filter_of(given: Mapping[str, Any], *, now: datetime) -> ItemFilter:
    """The filter in a query, a form or a JSON object; empty texts do not restrict."""
    return ItemFilter(
        statuses=_statuses(given.get("status")),
        ids=ids_of(given.get("id")),
        event_key=text_of("key", given.get("key")),
        event_name=text_of("event_name", given.get("event_name")),
        uuid=_uuid(given.get("uuid")),
        error=text_of("error", given.get("error")),
        created_from=moment_of("from", given.get("from"), now=now),
        created_before=moment_of("to", given.get("to"), now=now),
    )


def page_of(given: Mapping[str, Any]) -> Page:
    """Which page: ``before`` or ``after`` an id, ``limit`` rows."""
    before, after = id_of("before", given.get("before")), id_of("after", given.get("after"), least=0)
    if before is not None and after is not None:
        raise BadInput("before and after exclude each other")
    limit = number_of("limit", given.get("limit"), least=1, most=LARGEST_PAGE)
    towards = Towards.OLDER if after is None else Towards.NEWER
    return Page(before if after is None else after, towards, PAGE if limit is None else limit)


def text_of(name: str, given: Any) -> str | None:
    """A short text; None if it is left out or empty."""
    if given is None or given == "":
        return None
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    if not isinstance(given, str):
        raise BadInput(f"{name}: expected text")
    if len(given) > LONGEST_TEXT:
        raise BadInput(f"{name}: at most {LONGEST_TEXT} characters")
    if UNSTORABLE.search(given):
        raise BadInput(f"{name}: holds a character that no database keeps in a text")
    return given


def number_of(name: str, given: Any, *, least: int, most: int) -> int | None:
    """A whole number from ``least`` to ``most``; None if it is left out or empty."""
    if given is None or given == "":
        return None
    text = str(given).strip() if isinstance(given, str | int) and not isinstance(given, bool) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most):
        raise BadInput(f"{name}: expected a whole number from {least} to {most}")
    return int(text)


def id_of(name: str, given: Any, *, least: int = 1) -> int | None:
    """The id of an item."""
    return number_of(name, given, least=least, most=LARGEST_ID)


def flag_of(name: str, given: Any) -> bool:
    """A boolean; False if it is left out."""
    match given:
        case None | "" | False | "false" | "0":
            return False
        case True | "true" | "1" | "on":
            return True
        case _:
            raise BadInput(f"{name}: expected true or false")


def moment_of(name: str, given: Any, *, now: datetime) -> datetime | None:
    """Parses ISO 8601 (UTC without a zone), or a duration before now: ``PT1H``."""
    text = text_of(name, given)
    if text is None:
        return None
    try:
        if text.upper().startswith("P"):
            return now - parse(text.upper())
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{name}: expected a moment such as 2026-01-31T12:00Z, or how long ago, such as PT1H") from error


def settled(asked: Mapping[str, Any], since: datetime | None, before: datetime | None) -> dict[str, Any]:
    """The filter as it was typed, with moments in place of how long ago: what is confirmed later is what was asked about."""
    ends = {"from": since, "to": before}
    return {**asked, **{name: rfc3339(end) for name, end in ends.items() if end is not None}}


def _statuses(given: Any) -> frozenset[int]:
    names = several("status", given)
    known = {status.name.lower(): int(status) for status in Status}
    for name in names:
        if name not in known:
            raise BadInput(f"status: expected {', '.join(known)}")
    return frozenset(known[name] for name in names)


def ids_of(given: Any) -> tuple[int, ...]:
    """Ids, one or more."""
    parts = several("id", given)
    if len(parts) > MOST_IDS:
        raise BadInput(f"id: at most {MOST_IDS} at once")
    return tuple(sorted({found for part in parts if (found := id_of("id", part)) is not None}))


def several(name: str, given: Any) -> list[str]:
    """Values given as a list, or separated by commas; none if it is left out or an empty text.

    An empty list is a mistake: whoever chose three items, of which none is left, does not mean all of them.
    """
    if given is None or given == "":
        return []
    entries = given if isinstance(given, list | tuple) else [given]
    if not all(isinstance(each, str | int) and not isinstance(each, bool) for each in entries):
        raise BadInput("expected texts or numbers")
    parts = [part.strip() for each in entries for part in str(each).split(",") if part.strip()]
    if not parts:
        raise BadInput(f"{name}: names nothing; leave it out to restrict nothing")
    return parts


def _uuid(given: Any) -> str | None:
    text = text_of("uuid", given)
    if text is None:
        return None
    try:
        return str(UUID(text))
    except ValueError as error:
        raise BadInput("uuid: expected one such as 018f2f6a-5c1e-7b2a-9d1f-2f6a5c1e7b2a") from error
