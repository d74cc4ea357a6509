"""``docs/configuration.md`` has every key of ``boxengine config schema`` with its default, and no other key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from boxengine.settings import json_schema

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
BOXES = "## Boxes"
"""The heading under which keys are those of a box; elsewhere they are those of the whole file."""
ROW = re.compile(r"^\| `(?P<key>[\w.]+)` \| (?P<default>.*?) ?\| (?P<meaning>.+) \|$", re.MULTILINE)
DEFINITIONS: Mapping[str, Any] = json_schema()["$defs"]


def keys(definition: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Each key of the schema with its default as the page should show it."""
    for name, schema in definition["properties"].items():
        inner = referred(schema)
        if inner is None:
            yield path + name, shown(schema.get("default"))
        else:
            # Boxes of both sides have the same keys.
            yield from keys(inner, "BOX." if name in ("outbox_items", "inbox_items") else f"{path}{name}.")


def referred(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The definition that a key's value, or each value below it, must follow."""
    below = schema.get("additionalProperties")
    choices = [schema, below if isinstance(below, dict) else {}, *schema.get("anyOf", [])]
    found = next((each["$ref"] for each in choices if "$ref" in each), None)
    return None if found is None else DEFINITIONS[found.rpartition("/")[2]]


def shown(default: object) -> str:
    if default in (None, []):
        return ""
    return f"`{default}`" if isinstance(default, str) else f"`{json.dumps(default)}`"


def page() -> dict[str, re.Match[str]]:
    """The rows of the page by their keys."""
    found = {}
    for section in re.split(r"^(?=## )", PAGE.read_text(), flags=re.MULTILINE):
        prefix = "BOX." if section.startswith(BOXES) else ""
        found.update({prefix + row["key"]: row for row in ROW.finditer(section)})
    return found


WANTED = dict(keys(DEFINITIONS["Settings"]))


@pytest.mark.parametrize("key", WANTED)
def test_a_key_has_its_row_with_its_default_and_a_meaning(key: str) -> None:
    row = page().get(key)
    where = "under '## Boxes' of docs/configuration.md" if key.startswith("BOX.") else "in docs/configuration.md"
    wanted = f"| `{key.removeprefix('BOX.')}` | {WANTED[key]} | (its meaning) |"
    assert row is not None, f"there should be {where}: {wanted}"
    assert row["default"] == WANTED[key], f"it should say {where}: {wanted}"


def test_the_page_has_no_key_that_is_not_there() -> None:
    assert set(page()) <= set(WANTED)


def test_no_key_stands_twice() -> None:
    for section in re.split(r"^(?=## )", PAGE.read_text(), flags=re.MULTILINE):
        listed = [row["key"] for row in ROW.finditer(section)]
        assert sorted(listed) == sorted(set(listed))
