"""The example of subscriptions, which is what ``docs/subscriptions.md`` shows."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

import boxengine
from boxengine.app.boxes import load_for_worker
from boxengine.cli import main
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "subscriptions"
INVOICES = ["invoice for ACME a bicycle", "invoice for ACME a bell", "invoice for Umbrella a lock"]
INDEXED = ["indexed a bicycle as 1", "indexed a bell as 2", "indexed a lock as 3"]


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main.run(["--config", str(EXAMPLE / "outbox.yml"), *arguments])
    assert not ended.value.code


def test_two_receivers_get_each_sale_and_one_of_them_again(
    monkeypatch: pytest.MonkeyPatch, postgres_url: str, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delitem(sys.modules, "sales", raising=False)
    boxes = load_for_worker(EXAMPLE / "outbox.yml")
    monkeypatch.setattr(sys.modules["sales"], "create_outbox_item", boxes.create_outbox_item)
    printed: list[str] = []

    def came(expected: list[str]) -> bool:
        printed.extend(capsys.readouterr().out.splitlines())
        return sorted(printed) == sorted(expected)

    run("db", "create")
    capsys.readouterr()
    runpy.run_path(str(EXAMPLE / "sell.py"))
    with boxengine.running(boxes):
        eventually(lambda: came(INVOICES + INDEXED))
        run("subscriptions", "rewind", "sale_outbox_item.search", "--time", "PT1H", "--yes")
        rewound = ["sale_outbox_item.search: 3 items go out once more"]
        eventually(lambda: came(INVOICES + 2 * INDEXED + rewound))
    assert [line for line in printed if "ACME" in line] == INVOICES[:2], "those of one customer in order"
    monkeypatch.delitem(sys.modules, "sales")


@pytest.mark.parametrize("name", ["outbox.yml", "sales.py", "sell.py"])
def test_the_page_shows_the_example(name: str) -> None:
    assert (EXAMPLE / name).read_text().strip() in (ROOT / "docs" / "subscriptions.md").read_text()
