"""The examples of pages that show tests, each run as a project of somebody who has read only that page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
DOCS = Path(__file__).parents[2] / "docs"
CONFIGURATION = "app: shop\noutbox_items: {order_outbox_item: {model: shop.OrderOutboxItem, transports: {log: {}}}}\n"
BLOCK = re.compile(r'```\w+ title="([^"]+)"\n(.*?)```', re.DOTALL)


@pytest.mark.parametrize(
    ("page", "at_least"), [("testing.md", 6), ("emitting.md", 1), ("payloads.md", 4), ("types.md", 2), ("async.md", 3)]
)
def test_every_example_of_the_page_passes(
    page: str, at_least: int, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BOXENGINE_CONFIG", raising=False)
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    (pytester.path / "outbox.yml").write_text(CONFIGURATION, encoding="utf-8")
    for name, text in blocks:
        (pytester.path / name).write_text(text, encoding="utf-8")
    pytester.makeini("[pytest]\npythonpath = .\n")
    tests = sum(text.count("def test_") for _, text in blocks)
    assert tests >= at_least
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "0").assert_outcomes(passed=tests)
