"""Finds changes in a new AsyncAPI document that break users of the old one.

Receivers rely on what a service sends: nothing may go away or become wider than it was. Senders rely on what it receives: it
may not ask for more than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
_NUMBERS = frozenset({"integer", "number"})
_TYPES: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
    list: "array",
    dict: "object",
}
"""What JSON Schema calls the types of values."""


def breaking_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One line for each breaking change; none: whoever works with the old document also works with the new one.

    Operations are identified by their action and their channel's key, so a box or a transport with another name is a new one.
    """
    found: list[str] = []
    for key, operation in old.get("operations", {}).items():
        if key not in new.get("operations", {}):
            found.append(f"{key}: is gone")
            continue
        pair = _Pair(old, new, sends=operation.get("action") == "send")
        found += [f"{key}: {change}" for change in pair.changes(operation, new["operations"][key])]
    return found


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two documents, compared from the side of receivers (``sends``) or of senders."""

    _old: Mapping[str, Any]
    _new: Mapping[str, Any]
    sends: bool

    def changes(self, before: Schema, after: Schema) -> Iterator[str]:
        """The breaking changes of one operation."""
        old, new = _resolved(before["channel"], self._old), _resolved(after["channel"], self._new)
        if old.get("address") != new.get("address"):
            yield f"the address is {new.get('address')!r}, was {old.get('address')!r}"
        for name, reference in old.get("messages", {}).items():
            if name not in new.get("messages", {}):
                yield f"message {name}: is gone"
                continue
            one, other = _resolved(reference, self._old), _resolved(new["messages"][name], self._new)
            if one.get("contentType") != other.get("contentType"):
                yield f"message {name}: contentType is {other.get('contentType')}, was {one.get('contentType')}"
                if not ("payload" in one and "payload" in other):
                    continue
            # A message without a schema may be anything.
            payloads = one.get("payload", {}), other.get("payload", {})
            yield from self._of_schema(*payloads, f"message {name}: payload", frozenset())

    def _of_schema(self, before: Schema, after: Schema, where: str, seen: frozenset[tuple[int, int]]) -> Iterator[str]:
        olds, news = _alternatives(before, self._old), _alternatives(after, self._new)
        yield from self._of_types(olds, news, where)
        for kind in ("object", "array"):
            for old, new in _same(_of_type(olds, kind), _of_type(news, kind)):
                pair = id(old), id(new)
                if pair not in seen:  # a recursive type leads back to itself
                    yield from self._of_parts(old, new, where, seen | {pair})

    def _of_types(self, olds: list[Schema], news: list[Schema], where: str) -> Iterator[str]:
        """Compares the types, the values where they are listed, and which of several objects there may be."""
        # Receivers get what is new; what senders sent before must still be accepted.
        verb = "may now be" if self.sends else "may no longer be"
        known, found = (olds, news) if self.sends else (news, olds)
        known_types, types = _types(known), _types(found)
        if known_types is None:
            return
        if types is None:
            yield f"{where}: {verb} anything" + ("" if self.sends else f" but {_listed(known_types)}")
            return
        if strange := _beyond(types, known_types):
            yield f"{where}: {verb} {_listed(strange)}"
        for kind in sorted((types & known_types) - {"null"}):
            few, many = _values(known, kind), _values(found, kind)
            if few is not None and many is None:
                yield f"{where}: {verb} {'something else than' if self.sends else 'anything but'} {_listed(few)}"
            elif few is not None and many is not None and (strange := many - few):
                yield f"{where}: {verb} {_listed(strange)}"
        objects = _of_type(found, "object")
        if "object" in known_types and objects:
            paired = [each for pair in _same(_of_type(known, "object"), objects) for each in pair]
            others = [each for each in objects if all(each is not other for other in paired)]
            if others:
                yield f"{where}: {verb} {_listed(each.get('title', 'another object') for each in others)}"

    def _of_parts(self, old: Schema, new: Schema, where: str, seen: frozenset[tuple[int, int]]) -> Iterator[str]:
        """Compares the fields of two objects, or the elements of two arrays."""
        before, after = old.get("properties", {}), new.get("properties", {})
        required, now_required = set(old.get("required", ())), set(new.get("required", ()))
        if self.sends:
            yield from (f"{where}.{name}: is gone" for name in before if name not in after)
            yield from (
                f"{where}.{name}: may now be missing"
                for name in before
                if name in required - now_required and name in after
            )
        else:
            yield from (f"{where}.{name}: is now required" for name in after if name in now_required - required)
        for name in before:
            if name in after:
                yield from self._of_schema(before[name], after[name], f"{where}.{name}", seen)
        for part, sign in (("items", "[]"), ("additionalProperties", "{}")):
            one, other = old.get(part), new.get(part)
            if isinstance(one, Mapping) and isinstance(other, Mapping):
                yield from self._of_schema(one, other, f"{where}{sign}", seen)


def _resolved(value: Any, document: Mapping[str, Any]) -> Any:
    while isinstance(value, Mapping) and isinstance(value.get("$ref"), str):
        found: Any = document
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
        value = found
    return value


def _alternatives(schema: Schema, document: Mapping[str, Any]) -> list[Schema]:
    """The alternatives for a value, with top-level references resolved."""
    schema = _resolved(schema, document)
    if len(schema.get("allOf", ())) == 1:
        return _alternatives(schema["allOf"][0], document)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return [each for part in schema[word] for each in _alternatives(part, document)]
    return [schema]


def _types(schemas: Iterable[Schema]) -> frozenset[str] | None:
    """The types of all alternatives; None if one of them may be anything."""
    found: set[str] = set()
    for schema in schemas:
        types = _types_of(schema)
        if types is None:
            return None
        found |= types
    return frozenset(found)


def _types_of(schema: Schema) -> frozenset[str] | None:
    named, values = schema.get("type"), _values_of(schema)
    if named is not None:
        return frozenset({named} if isinstance(named, str) else named)
    return None if values is None else frozenset(_TYPES.get(type(value), "string") for value in values)


def _of_type(schemas: Iterable[Schema], kind: str) -> list[Schema]:
    return [schema for schema in schemas if kind in (_types_of(schema) or ())]


def _beyond(some: frozenset[str], known: frozenset[str]) -> frozenset[str]:
    """The types among ``some`` that ``known`` does not cover; every integer is a number."""
    return some - known - (_NUMBERS if "number" in known else frozenset())


def _values(schemas: Iterable[Schema], kind: str) -> frozenset[str] | None:
    """The values of this type that an enumeration or a constant lists; None if there may be others."""
    found: set[str] = set()
    for schema in _of_type(schemas, kind):
        values = _values_of(schema)
        if values is None:
            return None
        found |= {str(value) for value in values if _is_of_type(value, kind)}
    return frozenset(found)


def _values_of(schema: Schema) -> Sequence[Any] | None:
    values: Sequence[Any] | None = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return values


def _is_of_type(value: Any, kind: str) -> bool:
    own = _TYPES.get(type(value), "string")
    return own == kind or (kind == "number" and own in _NUMBERS)


def _same(olds: Sequence[Schema], news: Sequence[Schema]) -> list[tuple[Schema, Schema]]:
    """Which of them are to be compared: those with the same title, and the one that is left in both, as it was renamed."""
    titled = {each["title"]: each for each in news if "title" in each}
    pairs = [(old, titled[old["title"]]) for old in olds if old.get("title") in titled]
    left_old = [old for old in olds if old.get("title") not in titled]
    left_new = [new for new in news if all(new is not other for _, other in pairs)]
    return [*pairs, (left_old[0], left_new[0])] if len(left_old) == len(left_new) == 1 else pairs


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
