"""Pydantic's errors in the words of the file: its key paths, what was expected, and what was found."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from boxengine.domain.masking import MASK, is_secret, masked_text
from boxengine.settings.origin import Path
from boxengine.settings.schema import Settings

_LONGEST_SHOWN = 60
_EXPECTED = {
    "model_type": "expected a mapping (key: value)",
    "model_attributes_type": "expected a mapping (key: value)",
    "dict_type": "expected a mapping (key: value)",
    "mapping_type": "expected a mapping (key: value)",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "too_short": "expected at least one",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong at a path of the merged configuration."""

    path: Path
    message: str
    involves: frozenset[Path] = frozenset()
    """Other values that the finding depends on: where one of them is itself broken, the finding says nothing new."""


def findings(error: ValidationError, data: Mapping[str, Any], *, model: type[BaseModel] = Settings) -> list[Finding]:
    """One finding for each of Pydantic's errors over ``data``, which was held against ``model``."""
    return [_finding(details, data, model) for details in error.errors(include_url=False)]


def _finding(details: ErrorDetails, data: Mapping[str, Any], model: type[BaseModel]) -> Finding:
    path = _path_in_file(details["loc"], data)
    match details["type"]:
        case "extra_forbidden":
            return Finding(path, unknown_key(str(path[-1]), _known_keys(model, details["loc"][:-1])))
        case "missing":
            return Finding(path, "missing: this key is required")
        case "value_error":
            expected = str(details["ctx"]["error"])
        case "literal_error":
            expected = f"expected one of {details['ctx']['expected'].replace(chr(39), '')}"
        case "model_type" if _is_a_name_in_a_list(path, details["input"]):
            expected = f"expected a mapping such as {{class: {details['input']}}}"
        case other:
            expected = _EXPECTED.get(other, details["msg"])
    return Finding(path, expected + _found(path, details["input"]))


def _is_a_name_in_a_list(path: Path, given: object) -> bool:
    """Whether this stands for a transport of which only the class is said."""
    return path[-2:-1] == ("transports",) and isinstance(path[-1], int) and isinstance(given, str)


def unknown_key(key: str, known: Collection[str], *, also: Collection[str] = ()) -> str:
    """The message for a key that nobody knows, with the nearest that somebody does.

    Args:
        known: arguments or keys, all of which the message lists.
        also: others that may stand there.
    """
    candidates = [*known, *also]
    # Above difflib's own 0.6, by which "source" would be a misspelt "storage", and "enabled" one of "table".
    near = difflib.get_close_matches(key, candidates, n=1, cutoff=0.7)
    near = near or sorted((each for each in candidates if each.startswith(f"{key}_")), key=len)
    guess = f"did you mean {near[0]}? " if near else ""
    expected = f"one of {', '.join(sorted(known))}" if known else "no arguments"
    return f"unknown key; {guess}expected {expected}"


def _found(path: Path, value: object) -> str:
    if is_secret(path):
        return ""
    shown = repr(value)
    match value:
        case None:
            shown = "nothing"
        case bool():
            shown = str(value).lower()
        case dict():
            shown = "a mapping"
        case list() | tuple():
            shown = "a list"
        case str():
            # What should be a URL and is none may hold a password all the same.
            broken_url = bool(path) and str(path[-1]).endswith("url") and "@" in value and "://" not in value
            text = MASK if broken_url else masked_text(value)
            shown = repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}...")
    return f", got {shown}"


def _path_in_file(loc: tuple[int | str, ...], data: Any) -> Path:
    """Pydantic's location, as the reader of the file would say it: list positions, not names made for a list's entries."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(data, list):
            part = int(part)  # noqa: PLW2901 - transports are a mapping by position inside, a list in the file
            data = data[part] if part < len(data) else None
        elif isinstance(data, dict):
            data = data.get(part)
        elif isinstance(part, int):
            break
        path.append(part)
    return tuple(path)


def _known_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    annotation: Any = model
    for part in loc:
        if _is_model(annotation):
            annotation = _only_type(_field(annotation, str(part)))
        else:
            annotation = _only_type(typing.get_args(annotation)[-1])
    return [field.alias or name for name, field in annotation.model_fields.items()] if _is_model(annotation) else []


def _is_model(annotation: Any) -> typing.TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _field(model: type[BaseModel], key: str) -> Any:
    return next(field.annotation for name, field in model.model_fields.items() if key in (name, field.alias))


def _only_type(annotation: Any) -> Any:
    """``X`` of ``X | None``, and of ``Annotated[X, ...]``."""
    if hasattr(annotation, "__metadata__"):
        return _only_type(typing.get_args(annotation)[0])
    choices = [choice for choice in typing.get_args(annotation) if choice is not type(None)]
    return choices[0] if type(None) in typing.get_args(annotation) else annotation
