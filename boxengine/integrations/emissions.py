"""What an ``@emits`` specifies, independent of the object mapper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from boxengine.domain.names import underscore
from boxengine.domain.signatures import signature_of
from boxengine.engine.answers import discard, never_runs, unfinished
from boxengine.errors import InvalidItem

ACTIONS = {"insert": "created", "update": "updated", "delete": "deleted"}
"""The actions that can emit, each with its word in an event's name."""


def objects_of(given: Iterable[Any], action: str) -> Iterator[Any]:
    """The objects that ``emit`` is called with.

    Raises:
        InvalidItem: the action is unknown, or it is called with a single object.
    """
    if action not in ACTIONS:
        raise InvalidItem(f"emit: action={action!r} is not understood; expected {', '.join(ACTIONS)}")
    try:
        return iter(given)
    except TypeError:
        kind = type(given).__name__
        raise InvalidItem(f"emit: expected several objects, or one in a list; got an object of {kind}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What happened to one object."""

    action: str
    """``insert``, ``update`` or ``delete``."""
    before: dict[str, Any]
    """After an update, the attributes that changed, with their earlier values."""


Maker = Callable[[Any], object] | Callable[[Any, Change], object]
"""Called with the object, and with its ``Change`` too if it takes a second argument."""
Source = Maker | str | None
_WithChange = Callable[[Any, Change], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission(ABC):
    """What one ``@emits`` specifies. Here every callable takes the object and a ``Change``."""

    actions: frozenset[str]
    when: _WithChange | None
    event_name: _WithChange | str | None
    event_key: _WithChange | str | None
    payload: _WithChange
    options: _WithChange | None

    def attributes(self, target: Any, change: Change) -> dict[str, Any] | None:
        """The attributes of the item to create; None if there is none to create."""
        if change.action not in self.actions or not self._wanted(target, change):
            return None
        found = {
            "event_key": self._key(target, change),
            "event_name": self._name(target, change),
            "payload": self.payload(target, change),
        }
        if self.options is not None:
            found["options"] = self.options(target, change)
        return found

    @abstractmethod
    def primary_key(self, target: Any) -> Any:
        """The event key if ``@emits`` names no other."""

    def named_class(self, target: Any) -> type[Any]:
        """The class whose name begins the event's name if ``@emits`` names no event."""
        return type(target)

    def _wanted(self, target: Any, change: Change) -> bool:
        answer = True if self.when is None else self.when(target, change)
        if unfinished(answer):
            discard(answer)
            # It would count as true.
            raise InvalidItem(f"emits: when returned {type(answer).__name__}, and nobody awaits it; write a plain def")
        return bool(answer)

    def _name(self, target: Any, change: Change) -> Any:
        match self.event_name:
            case None:
                return f"{underscore(self.named_class(target).__name__)}_{ACTIONS[change.action]}"
            case str(name):
                return name
            case call:
                return call(target, change)

    def _key(self, target: Any, change: Change) -> Any:
        match self.event_key:
            case None:
                return self.primary_key(target)
            case str(attribute):
                return getattr(target, attribute)
            case call:
                return call(target, change)


def asked(
    *,
    payload: Maker,
    on: Sequence[str],
    when: Maker | None,
    event_name: Source,
    event_key: Source,
    options: Maker | None,
) -> dict[str, Any]:
    """The arguments of an ``@emits`` as an ``Emission`` takes them.

    Raises:
        InvalidItem: ``on`` names an unknown action, or another argument is none that a flush could call.
    """
    actions = frozenset([on] if isinstance(on, str) else on)
    if unknown := actions - ACTIONS.keys():
        raise InvalidItem(f"emits: on={sorted(unknown)} is not understood; expected {', '.join(ACTIONS)}")
    return {
        "actions": actions,
        "when": None if when is None else _called("when", when),
        "event_name": event_name if isinstance(event_name, str | None) else _called("event_name", event_name),
        "event_key": event_key if isinstance(event_key, str | None) else _called("event_key", event_key),
        "payload": _called("payload", payload),
        "options": None if options is None else _called("options", options),
    }


def _called(name: str, given: Maker) -> _WithChange:
    if not callable(given):
        raise InvalidItem(f"emits: {name}: expected a function that takes the object, got {given!r:.80}")
    kind = never_runs(given)
    if kind is not None:
        raise InvalidItem(f"emits: {name} is {kind}, and a flush could not run it; write a plain def")
    call: Callable[..., Any] = given
    try:
        parameters = signature_of(call).parameters.values()
    except (TypeError, ValueError):
        return lambda target, _change: call(target)
    positional = [
        each for each in parameters if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    # A second argument with a value of its own, as lambda order, rate=rate: ..., is not meant for a ``Change``.
    second = len(positional) > 1 and (positional[1].default is Parameter.empty or positional[1].default is None)
    takes_both = second or any(each.kind is Parameter.VAR_POSITIONAL for each in parameters)
    return call if takes_both else lambda target, _change: call(target)
