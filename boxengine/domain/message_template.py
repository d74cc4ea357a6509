"""Texts computed per message: ``{headers.Type}``, ``{value.order.id}``, ``{topic}-{key}``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from boxengine.domain.message import ReceivedMessage

ATTRIBUTES = ("topic", "partition", "offset", "key")

Reader = Callable[[ReceivedMessage], str]


class MessageTemplate:
    """Text with placeholders for parts of a message, checked on creation and filled in per message.

    Placeholders are ``{topic}``, ``{partition}``, ``{offset}``, ``{key}``, ``{headers.NAME}`` in any case, and
    ``{value.NAME.NAME}`` for a path into a JSON value. ``{}`` stands for nothing, and a literal brace is doubled.

    Raises:
        ValueError: a placeholder is unknown, or braces do not match.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts: list[str | Reader] = []
        for literal, place, _, _ in Formatter().parse(text):
            self._parts.append(literal)
            if place:
                self._parts.append(self._reader(place))

    def __call__(self, message: ReceivedMessage) -> str:
        """The text for this message.

        Raises:
            ValueError: the message has no value for one of the placeholders.
        """
        return "".join([part if isinstance(part, str) else part(message) for part in self._parts])

    def _reader(self, place: str) -> Reader:
        where, _, name = place.partition(".")
        if where == "headers" and name:
            return lambda message: self._present(place, _header(message, name.lower()))
        if where == "value" and name:
            return lambda message: self._present(place, _inside(message, name.split(".")))
        if place not in ATTRIBUTES:
            raise ValueError(f"no message has {place!r}; there are {', '.join(ATTRIBUTES)}, headers.NAME, value.NAME")
        return lambda message: self._present(place, _text(getattr(message, place)))

    def _present(self, place: str, value: Any) -> str:
        if value is None or value == "" or isinstance(value, dict | list):
            raise ValueError(f"{self._text!r} needs {place}, and the message has none")
        return str(value)


def _header(message: ReceivedMessage, name: str) -> str | None:
    found = None
    for each, value in message.headers:
        if each.lower() == name:
            found = value
    return None if found is None else found.decode()


def _inside(message: ReceivedMessage, names: list[str]) -> Any:
    found: Any = json.loads(message.value or b"null")
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
