"""What a source's rules say of a message: attributes of its item that replace, or add to, those of every message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from boxengine.domain.message import ReceivedMessage, fitted, without_nul
from boxengine.engine.answers import refusal, unfinished
from boxengine.engine.attempt import ends_the_worker, reason_of
from boxengine.errors import InvalidItem

Rules = Mapping[str, Callable[[ReceivedMessage], Any]]
"""By attribute. A rule that returns None leaves its attribute as it is."""
NAMES = frozenset({"event_key", "event_name"})
"""Attributes of every item. The others are columns of the user's own, or optional ones."""


def ruled(message: ReceivedMessage, rules: Rules) -> dict[str, Any]:
    """What all rules say.

    Raises:
        InvalidItem: a rule returned a coroutine, a generator or the like.
        BaseException: what a rule raises.
    """
    found = {name: _finished(name, rule(message)) for name, rule in rules.items()}
    return {name: value for name, value in found.items() if value is not None}


def ruled_remains(message: ReceivedMessage, rules: Rules) -> dict[str, Any]:
    """As much as possible of the same, for a dead letter: without the rules that fail, and with names that fit their columns."""
    found: dict[str, Any] = {}
    for name, rule in rules.items():
        try:
            found |= ruled(message, {name: rule})
        except BaseException as error:
            if ends_the_worker(error):
                raise
    return {name: _fitting(value) if name in NAMES else value for name, value in found.items()}


def _finished(name: str, value: Any) -> Any:
    if unfinished(value):
        raise InvalidItem(f"{name}: the rule {reason_of(refusal(value))}")
    return value


def _fitting(value: Any) -> Any:
    return fitted(without_nul(value)) if isinstance(value, str) else value
