"""JSON objects whose values are needed as they were written: a number may have more digits than one of Python's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\n\r]*")


class Member(NamedTuple):
    """A member of a JSON object."""

    value: Any
    text: str
    """The value as it was written: numbers keep all their digits."""


def members_of(text: str) -> Iterator[tuple[str, Member]]:
    """The members of a JSON object in their order, so a repeated name's last value comes last.

    Raises:
        ValueError: the text is no JSON object.
    """
    if not isinstance(DECODER.decode(text), dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - the data is wrong, not the call
    # From here on the text is known to be valid; the loop finds where each value begins and ends.
    at = _after_space(text, text.index("{") + 1)
    while text[at] != "}":
        name, at = DECODER.raw_decode(text, at)
        begin = _after_space(text, text.index(":", at) + 1)
        value, at = DECODER.raw_decode(text, begin)
        yield name, Member(value, text[begin:at])
        at = _after_space(text, at)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr] # it also matches the empty text


def _no_constant(name: str) -> None:
    """For ``parse_constant``: refuses NaN and Infinity, which Python reads but which are not JSON."""
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""Reads JSON as its standard has it."""
