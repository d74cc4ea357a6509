"""What a row of the table holds against a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.report import Row, write

SOUND: dict[str, Any] = {"fault": "sigkill-worker", "times": 10, "items": 20_000, "duplicates": 7, "in_work": 7}


def test_a_row_in_which_all_promises_held_is_not_broken() -> None:
    assert Row(**SOUND, recovery=4.5, recovery_limit=5.0).broken == ()


@pytest.mark.parametrize(
    ("flaw", "told"),
    [
        ({"times": 0}, "the fault was never injected"),
        ({"lost": 2}, "2 items lost"),
        ({"reordered": 3}, "3 items reordered"),
        ({"duplicates": 8}, "8 duplicates, and at most 7 items were in work"),
        ({"recovery": 5.2, "recovery_limit": 5.0}, "recovery took 5.2 s; 5 s are promised"),
        ({"problems": ("worker-1 had to be killed",)}, "worker-1 had to be killed"),
    ],
)
def test_each_broken_promise_is_one_sentence(flaw: dict[str, Any], told: str) -> None:
    assert Row(**{**SOUND, **flaw}).broken == (told,)


def test_a_run_is_written_with_its_seed_and_what_was_broken(tmp_path: Path) -> None:
    write(tmp_path / "new" / "run.json", [Row(**{**SOUND, "lost": 1})], seed=42, seconds=61.0)
    run = json.loads((tmp_path / "new" / "run.json").read_text())
    assert (run["seed"], run["seconds"], run["rows"][0]["broken"]) == (42, 61.0, ["1 items lost"])
