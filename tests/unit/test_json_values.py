"""What JSON can hold, in Python as well as in the databases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boxengine.domain.json_values import json_text


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": [1, 2.5, True, None]},
        "snow \u2603, a pair \U0001f600",
        r"a backslash and what follows: \u0000 \ud800 \\u0000 \\\ud800",
        "\U0001f600\U0001f600 \\ \U0001f600",
    ],
)
def test_what_json_and_the_databases_hold_goes_through(value: object) -> None:
    assert json.loads(json_text(value)) == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1, 2}, "set is not JSON"),
        (float("nan"), "Out of range"),
        (nested(100_000), "nested too deeply"),
        ("a\0b", "NUL"),
        ({"key \0": 1}, "NUL"),
        ("\\\0", "NUL"),
        ("\udc80", "half a surrogate"),
        (chr(0xDE00) + chr(0xD83D), "half a surrogate"),  # the wrong way around
        ("\U0001f600\ud83d", "half a surrogate"),
        ("\\\udc80", "half a surrogate"),
    ],
)
def test_what_either_of_them_cannot_hold_is_refused_with_the_reason(value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        json_text(value)
