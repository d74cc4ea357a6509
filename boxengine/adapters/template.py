"""Names worked out per item: ``orders.{event_name}``, ``{options.tenant}-{event_key}``."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from string import Formatter

from boxengine.domain.item import Item
from boxengine.errors import BoxError

ATTRIBUTES = ("box_name", "box_type", "bucket", "event_key", "event_name", "id", "uuid")
MAPPINGS = ("headers", "options")

Part = str | Callable[[Item], str]


class ItemTemplate:
    """Text with places for an item's attributes, checked when it is made, filled in per item.

    Places are ``{box_name}``, ``{box_type}``, ``{bucket}``, ``{event_key}``, ``{event_name}``, ``{id}``, ``{uuid}``,
    ``{options.NAME}`` and ``{headers.NAME}``; a brace is written twice.

    Raises:
        BoxError: a place that no item has, or braces that do not match.
    """

    def __init__(self, text: str, *, what: str) -> None:
        self._what = what
        self._text = text
        self._parts: list[Part] = []
        try:
            for literal, place, _, _ in Formatter().parse(text):
                self._parts.append(literal)
                if place is not None:
                    self._parts.append(self._reader(place))
        except ValueError as error:
            raise BoxError(f"{what} {text!r}: {error}") from error
        places = any(callable(part) for part in self._parts)
        self.constant = None if places else self.literals
        """The text where it has no places, the same for all items."""

    @property
    def literals(self) -> str:
        """What does not depend on the item."""
        return "".join(part for part in self._parts if isinstance(part, str))

    def __call__(self, item: Item) -> str:
        """The text for this item.

        Raises:
            ValueError: the item has nothing to put in one of the places.
        """
        if self.constant is not None:
            return self.constant
        return "".join([part if isinstance(part, str) else part(item) for part in self._parts])

    def _reader(self, place: str) -> Callable[[Item], str]:
        mapping, _, entry = place.partition(".")
        if mapping in MAPPINGS and entry:
            entries = attrgetter(mapping)
            return lambda item: self._present(place, entries(item).get(entry))
        if place not in ATTRIBUTES:
            known = ", ".join((*ATTRIBUTES, *(f"{mapping}.NAME" for mapping in MAPPINGS)))
            raise BoxError(f"{self._what} {self._text!r}: no item has {place!r}; there are {known}")
        attribute = attrgetter(place)
        return lambda item: self._present(place, attribute(item))

    def _present(self, place: str, value: object) -> str:
        if value is None or value == "":
            raise ValueError(f"{self._what} {self._text!r} needs {place}, and the item has none")
        return str(value)
