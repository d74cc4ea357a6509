"""Texts and lists of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

CUT = object()
"""Stands in a list for an entry that was wrong and is left out, so that the others keep their positions in messages."""


def lowered(value: object) -> object:
    """For words that people write in capitals as well."""
    return value.lower() if isinstance(value, str) else value


def demand_text(value: object) -> str:
    """Raises ``ValueError`` unless it is text that is not empty."""
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError("expected text" if isinstance(value, str | Mapping | list) else "expected text (put it in quotes)")


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else _without_cuts(value)


def _without_cuts(value: object) -> object:
    return [entry for entry in value if entry is not CUT] if isinstance(value, list) else value


def comma_separated(value: object) -> object:
    """The parts of a text with commas; a list as it is."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else _without_cuts(value)


Text = Annotated[str, BeforeValidator(demand_text), WithJsonSchema({"type": "string", "minLength": 1})]
Token = Annotated[
    str, BeforeValidator(lambda value: demand_text(value).strip()), WithJsonSchema({"type": "string", "minLength": 1})
]
"""What is put in from a file often ends in a line break, which nobody types and no header carries."""
DottedPaths = Annotated[
    tuple[Text, ...],
    BeforeValidator(_one_or_more),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


def _words(value: object) -> str:
    if not isinstance(value, str):
        advice = "" if isinstance(value, Mapping | list) else " (put it in quotes)"
        raise ValueError(f"expected text{advice}")  # noqa: TRY004 - pydantic's way
    return value


def _words_or_more(value: object) -> object:
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return value
    return _words(value)


def _keys(value: object) -> object:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping (key: value)")  # noqa: TRY004 - pydantic's way
    return value


Words = Annotated[str, BeforeValidator(_words)]
"""Text of a transport's argument, which may be empty."""
WordsOrMore = Annotated[Any, BeforeValidator(_words_or_more)]
Keys = Annotated[Any, BeforeValidator(_keys)]


def _hidden(value: object) -> dict[str, tuple[str, ...] | None]:
    if not isinstance(value, Mapping):
        raise ValueError("expected box names, each with true or a list of key paths")  # noqa: TRY004 - pydantic's way
    return {str(box): _hidden_of(box, rule) for box, rule in value.items() if rule is not False}


def _hidden_of(box: object, rule: object) -> tuple[str, ...] | None:
    match rule:
        case True | None:
            return None
        case str():
            return (rule,)
        case list() | tuple() if all(isinstance(path, str) and path for path in rule):
            return tuple(rule)
        case _:
            raise ValueError(f"expected true or a list of key paths for {box}")


Hidden = Annotated[
    Mapping[str, tuple[str, ...] | None],
    BeforeValidator(_hidden),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": "boolean"}, {"type": "string"}, {"type": "array", "items": {"type": "string"}}]
            },
        }
    ),
]
"""By box: None for the whole payload, else the key paths."""
