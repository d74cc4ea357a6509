"""Arguments of transports and sources: how one is read, and what is said of one that is not in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from boxengine.errors import BoxError, described
from boxengine.settings.boxes import KafkaSettings
from boxengine.settings.diagnosis import findings

Checks = Callable[[Mapping[str, Any]], Iterable[tuple[str | None, Callable[[], object]]]]
"""Of the arguments of a built-in transport or source: pairs of an argument, and a call that raises ``BoxError`` if nothing could
be made with it. These calls ask no server, read no file and need no optional package."""


class Misconfigured(Exception):
    """A transport that cannot be made as the file says; ``mistakes`` are (key under the transport or None, message)."""

    def __init__(self, *mistakes: tuple[str | None, str]) -> None:
        self.mistakes = mistakes
        super().__init__("; ".join(message for _, message in mistakes))


def parsed(argument: str, given: object, kind: Any) -> Any:
    """An argument as this kind of value.

    Raises:
        Misconfigured: it is none.
    """
    try:
        # With its name, by which a secret is known and not shown.
        return TypeAdapter(dict[str, kind]).validate_python({argument: given})[argument]
    except ValidationError as error:
        message = findings(error, {argument: given}, model=KafkaSettings)[0].message
        raise Misconfigured((argument, message)) from error


def examined(arguments: Mapping[str, Any], checks: Checks | None) -> list[tuple[str | None, str]]:
    """The faults of arguments that no type shows: each with its argument."""
    mistakes: list[tuple[str | None, str]] = []
    for argument, check in () if checks is None else checks(arguments):
        try:
            check()
        except BoxError as error:
            mistakes.append((argument, str(error)))
        except Exception as error:  # what a check does not foresee, the constructor would not either
            mistakes.append((argument, described(error)))
    return mistakes
