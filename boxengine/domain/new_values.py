"""Finds values of new items that a database would refuse, because a refusal would abort the caller's transaction."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from boxengine.domain.box import Box, Storage
from boxengine.errors import InvalidItem

NO_LIMIT = sys.maxsize
"""For columns that take keys of any length."""
TEXTS = ("event_key", "event_name", "dedup_key")
"""Columns for texts, each of a certain length."""
NO_LIMITS: Mapping[str, int] = MappingProxyType(dict.fromkeys(TEXTS, NO_LIMIT))
UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
"""Characters that JSON and YAML can express, and no database can store in a text."""
ENGINE_OWNED = frozenset({"id", "status", "errors_count", "error_log", "processed_at", "updated_at"})
"""Columns that a caller must not set."""
NOT_IN_A_LOG = {
    "available_at": "where a position cannot skip an item that waits",
    "dedup_key": "where the log of an outbox has no unique index",
    "seq": "which has no place for the numbers",
}
"""Columns that decide when an item goes out, or whether it is one, each with the reason why the log of an outbox box has no place
for it."""
_OPTIONAL = frozenset({"event_name", "options", "available_at", "dedup_key"})
"""Those whose column a table may lack."""
_MADE = frozenset({"uuid", "created_at"})
"""Columns that have a value even if none is given, and take no NULL."""
MOMENTS = {"available_at": "datetime.now(UTC) + timedelta(hours=1)", "created_at": "datetime.now(UTC)"}
"""Columns for moments, each with an example."""


def check_names(box: Box, row: Mapping[str, Any], columns: Collection[str], position: int) -> None:
    """Refuses an attribute that none of the columns takes.

    Raises:
        InvalidItem: names it, and what helps.
    """
    unknown = sorted(row.keys() - columns)
    if not unknown:
        return
    where = f"box {box.name}, item {position}"
    if box.storage is Storage.LOG:
        for name in filter(NOT_IN_A_LOG.__contains__, unknown):
            raise InvalidItem(
                f"{where}: {name}: not with storage: log, {NOT_IN_A_LOG[name]}; leave it out, or convert the box with: "
                f"boxengine db convert {box.name} --to table"
            )
    for name in filter(_OPTIONAL.__contains__, unknown):
        raise InvalidItem(
            f"{where}: unknown attribute {name}: table {box.table!r} has no such column, or no unique index over it; "
            "add what it lacks with: boxengine db upgrade"
        )
    if "headers" in unknown:
        raise InvalidItem(
            f'{where}: unknown attribute headers; they are a part of the options: options={{"headers": ...}}'
        )
    if ENGINE_OWNED.issuperset(unknown):
        raise InvalidItem(f"{where}: {', '.join(unknown)}: boxengine alone sets this; leave it out")
    raise InvalidItem(f"{where}: {unknown_attributes(unknown, columns)}")


def unknown_attributes(names: Sequence[object], known: Collection[str]) -> str:
    """What is said of attributes that nobody knows, with what the first of them was probably meant to be."""
    near = get_close_matches(str(names[0]), known, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    return f"unknown attribute {', '.join(map(str, names))}; {guess}known: {', '.join(sorted(known))}"


def check_values(
    box: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    longest: Mapping[str, int] = NO_LIMITS,
    look: Callable[[], Mapping[str, int]] | None = None,
    zoneless: bool = False,
) -> None:
    """Refuses a text that its column cannot store, what is no UUID, and what is no moment, or has no zone.

    Args:
        longest: how many characters each of the columns in ``TEXTS`` is said to take.
        look: how many they really take. Called only if a text is longer than it is said to.
        zoneless: whether something else says which zone a moment without one is in.

    Raises:
        InvalidItem: names the item and the attribute.

    Example::

        check_values("order_outbox_item", [{"event_key": "7", "uuid": "nonsense"}])
        # InvalidItem: box order_outbox_item, item 0: uuid 'nonsense' is not a UUID
    """
    # This runs for every item of an application, so it looks at what a row has, and calls little if that is in order.
    for position, row in enumerate(rows):
        for name, given in row.items():
            if name in longest:
                if isinstance(given, str) and (len(given) > longest[name] or not given.isprintable()):
                    longest = _looked_at(given, name, longest, look, where=f"box {box}, item {position}: {name}")
            elif given is None:
                if name in _MADE:
                    raise InvalidItem(f"box {box}, item {position}: {name} is None; leave it out, or give one")
            elif name == "uuid":
                if not _is_uuid(given):
                    raise InvalidItem(f"box {box}, item {position}: uuid {given!r:.80} is not a UUID")
            elif name in MOMENTS and (expected := _expected_moment(name, given, zoneless=zoneless)):
                raise InvalidItem(f"box {box}, item {position}: {name}: {expected}; got {given!r:.80}")


def check_single_values(box: str, rows: Sequence[Mapping[str, Any]], columns: Collection[str]) -> None:
    """Refuses an object, a list or a set for a column that takes a single value.

    A driver may store its text, or raise an error that reads as if the statement were wrong, or the server.

    Raises:
        InvalidItem: names the item and the attribute.
    """
    for position, row in enumerate(rows):
        for name in columns:
            given = row.get(name)
            if isinstance(given, Mapping | list | tuple | AbstractSet):
                raise InvalidItem(
                    f"box {box}, item {position}: {name}: expected a single value, got {type(given).__name__}"
                )


def same_key(key: Any) -> Any:
    """The key whose ``str()`` is stored: a member of an enumeration of texts equals its text, and may have another ``str()``."""
    return key.value if isinstance(key, Enum) and isinstance(key, str) else key


def name_events(box: str, rows: Sequence[dict[str, Any]]) -> None:
    """Makes texts of members of enumerations that name events, for a column that holds texts.

    Drivers disagree about them: one stores the member's name in place of its value, another refuses it, and the transaction is
    lost.

    Raises:
        InvalidItem: the member is neither a text nor a whole number; names the item.
    """
    for position, row in enumerate(rows):
        given = row.get("event_name")
        if not isinstance(given, Enum):
            continue
        if not isinstance(given, str | int):
            kind = type(given).__name__
            raise InvalidItem(
                f"box {box}, item {position}: event_name must be a text, a whole number or a UUID, not {kind}; "
                f"give what is meant, such as {kind}.{given.name}.value"
            )
        row["event_name"] = str(given.value)


def not_json(box: str, position: int, why: str) -> InvalidItem:
    """What is said of options that JSON cannot hold, for the reason given."""
    return InvalidItem(f"box {box}, item {position}: options: expected what JSON can hold: {why}")


def _looked_at(
    text: str, name: str, longest: Mapping[str, int], look: Callable[[], Mapping[str, int]] | None, *, where: str
) -> Mapping[str, int]:
    """How many characters the columns take, as it is known once this text has passed."""
    if len(text) > longest[name]:
        longest = longest if look is None else look()
        if len(text) > longest[name]:
            raise InvalidItem(
                f"{where} has {len(text)} characters; its column takes {longest[name]} at most: give a shorter one, such as a "
                "hash of it, or widen the column"
            )
    found = UNSTORABLE.search(text)
    if found is not None:
        raise InvalidItem(
            f"{where} {text!r:.80} holds the character U+{ord(found[0]):04X}, which is no text: leave it out"
        )
    return longest


def _expected_moment(name: str, given: Any, *, zoneless: bool) -> str:
    """What was expected in place of a value that surely is no moment, or one that has no date in UTC; empty if nothing is amiss.

    Without a zone, MySQL takes a moment for UTC, and PostgreSQL for a time in the session's zone.
    """
    zoned = isinstance(given, datetime) and given.utcoffset() is not None
    if not zoned and isinstance(given, timedelta | int | float if zoneless else date | timedelta | int | float):
        return f"expected a datetime with a zone, such as {MOMENTS[name]}"
    if zoned and given.year in (MINYEAR, MAXYEAR):
        try:
            given.astimezone(UTC)
        except OverflowError:
            return f"expected a moment from the year {MINYEAR} to {MAXYEAR} in UTC"
    return ""


def _is_uuid(given: object) -> bool:
    if isinstance(given, UUID):
        return True
    try:
        UUID(given)  # type: ignore[arg-type] # told by what it raises
    except (ValueError, TypeError, AttributeError):
        return False
    return True
