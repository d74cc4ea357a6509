"""The items that the code under test has created, compared with what the test expects of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, overload

from boxengine.domain.item import Item

_LONGEST = 200
"""Characters of a value in a message."""


class Emitted(Sequence[Item]):
    """Items in the order of their creation.

    Equal to a list of mappings, one for each item, if every attribute that a mapping names is equal. A payload is compared
    as JSON if a dict, list, number, bool or None is expected, and as text if a str is.

    Example::

        assert boxes.emitted(OrderOutboxItem) == [
            {"event_name": "order_placed", "payload": {"what": "a bicycle"}},
            {"event_name": "order_paid", "event_key": "1"},
        ]
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = tuple(items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Emitted: ...
    def __getitem__(self, index: int | slice) -> Item | Emitted:
        if isinstance(index, slice):
            return Emitted(self._items[index])
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Emitted):
            return self._items == other._items
        if isinstance(other, Sequence) and not isinstance(other, str | bytes):
            return not self.differences(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment] # equal to many unequal things

    def __repr__(self) -> str:
        return "[" + ", ".join(map(describe, self._items)) + "]"

    def differences(self, expected: Sequence[Any]) -> list[str]:
        """One sentence for each difference; empty if everything is as expected.

        Args:
            expected: a mapping for each item, or an ``Item`` that must be equal.
        """
        found: list[str] = []
        for place, (item, wanted) in enumerate(zip_longest(self._items, expected)):
            if wanted is None:
                found.append(f"item {place}: not expected: {describe(item)}")
            elif item is None:
                found.append(f"item {place}: missing: {_short(wanted)}")
            elif isinstance(wanted, Mapping):
                found += [f"item {place}: {line}" for line in _compared(item, wanted)]
            elif item != wanted:
                found.append(f"item {place}: expected {_short(wanted)}, got {describe(item)}")
        return found


def describe(item: Item) -> str:
    """What distinguishes the item from others, on one line."""
    parts = [f"event_key={item.event_key!r}", f"payload={_short(_readable(item.payload))}"]
    if item.event_name is not None:
        parts.insert(0, f"event_name={item.event_name!r}")
    return f"<item {item.id} of {item.box_name}: {', '.join(parts)}>"


def _compared(item: Item, wanted: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, expected in wanted.items():
        if not hasattr(item, name):
            lines.append(f"{name}: an item has no such attribute (a column of the model's own is only in its table)")
            continue
        actual = getattr(item, name)
        if name == "payload":
            actual = _as_expected(actual, expected)
        elif name in ("options", "headers") and isinstance(expected, Mapping):
            # A test that names its own headers does not care about the engine's.
            actual = {key: actual[key] for key in expected if key in actual}
        elif name in ("event_key", "uuid") and actual != expected:  # unlike ANY
            expected = str(expected)  # noqa: PLW2901 - as it is stored
        lines += _unequal(name, actual, expected)
    return lines


def _unequal(path: str, actual: Any, expected: Any) -> list[str]:
    """Where the two differ, down to the keys of nested mappings."""
    if _same(actual, expected):
        return []
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        lines = []
        for key in dict.fromkeys([*expected, *actual]):
            if key not in actual:
                lines.append(f"{path}.{key}: missing, expected {_short(expected[key])}")
            elif key not in expected:
                lines.append(f"{path}.{key}: not expected, got {_short(actual[key])}")
            else:
                lines += _unequal(f"{path}.{key}", actual[key], expected[key])
        return lines
    return [f"{path}: expected {_short(expected)}, got {_short(actual)}"]


def _same(actual: Any, expected: Any) -> bool:
    """Whether they are equal, as JSON has it: for Python, True is 1, also within a list or a mapping."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        return actual.keys() == expected.keys() and all(_same(actual[key], expected[key]) for key in expected)
    if isinstance(actual, list) and isinstance(expected, list):
        return len(actual) == len(expected) and all(map(_same, actual, expected))
    if isinstance(expected, int | float) and isinstance(actual, bool) != isinstance(expected, bool):
        return False
    return bool(actual == expected)


def _as_expected(payload: Any, expected: Any) -> Any:
    """The payload in the form that the test expects; unchanged if it cannot be converted."""
    if not isinstance(payload, bytes) or isinstance(expected, bytes):
        return payload
    try:
        return payload.decode() if isinstance(expected, str) else json.loads(payload)
    except ValueError:
        return payload


def _readable(payload: Any) -> Any:
    if isinstance(payload, bytes):
        try:
            return payload.decode()
        except UnicodeError:
            pass
    return payload


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"
