"""Finds changes in a new AsyncAPI document that break users of the old one.

Receivers rely on what a service sends: nothing may go away or become wider than it was. Senders rely on what it receives: it
may not ask for more than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
_NUMBERS = frozenset({"integer", "number"})


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
            if "payload" in one and "payload" in other:
                yield from self._of_schema(one["payload"], other["payload"], f"message {name}: payload", frozenset())

    def _of_schema(self, before: Schema, after: Schema, where: str, seen: frozenset[tuple[str, str]]) -> Iterator[str]:
        place = str(before.get("$ref")), str(after.get("$ref"))
        if "$ref" in before and place in seen:
            return  # a recursive type
        seen |= {place}
        olds, news = _alternatives(before, self._old), _alternatives(after, self._new)
        old_types, new_types = _types(olds), _types(news)
        if old_types and new_types:
            # Receivers get the new types; what senders sent before must still be accepted.
            strange = _beyond(new_types, old_types) if self.sends else _beyond(old_types, new_types)
            if strange:
                verb = "may now be" if self.sends else "may no longer be"
                yield f"{where}: {verb} {', '.join(sorted(strange))}"
        yield from self._of_values(olds, news, where)
        old, new = _only(olds, "object"), _only(news, "object")
        if old is not None and new is not None:
            yield from self._of_object(old, new, where, seen)
        old, new = _only(olds, "array"), _only(news, "array")
        if old is not None and new is not None and "items" in old and "items" in new:
            yield from self._of_schema(old["items"], new["items"], f"{where}[]", seen)

    def _of_object(self, old: Schema, new: Schema, where: str, seen: frozenset[tuple[str, str]]) -> Iterator[str]:
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

    def _of_values(self, olds: list[Schema], news: list[Schema], where: str) -> Iterator[str]:
        """Compares the values of an enumeration."""
        old, new = _values(olds), _values(news)
        if not self.sends and old is None and new is not None:
            yield f"{where}: may no longer be anything but {', '.join(sorted(new))}"
        if old is None or new is None:
            return
        strange = new - old if self.sends else old - new
        if strange:
            yield f"{where}: {'may now be' if self.sends else 'may no longer be'} {', '.join(sorted(strange))}"


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
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return [each for part in schema[word] for each in _alternatives(part, document)]
    return [schema]


def _types(schemas: list[Schema]) -> frozenset[str]:
    """The types of all alternatives; empty if one of them may be anything."""
    found: set[str] = set()
    for schema in schemas:
        named = schema.get("type")
        if named is None:
            return frozenset()
        found |= {named} if isinstance(named, str) else set(named)
    return frozenset(found)


def _beyond(some: frozenset[str], known: frozenset[str]) -> frozenset[str]:
    """The types among ``some`` that ``known`` does not cover; every integer is a number."""
    return some - known - (_NUMBERS if "number" in known else frozenset())


def _only(schemas: list[Schema], kind: str) -> Schema | None:
    found = [schema for schema in schemas if schema.get("type") == kind]
    return found[0] if len(found) == 1 else None


def _values(schemas: list[Schema]) -> frozenset[str] | None:
    """The values of an enumeration or a constant; None if the schema does not list values."""
    listed = [schema.get("enum", [schema["const"]] if "const" in schema else None) for schema in schemas]
    found = [values for values in listed if values is not None]
    return frozenset(str(value) for values in found for value in values) if found else None
