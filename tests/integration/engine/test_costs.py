"""What a full drain sends to the servers, counted by the benchmark that knows how: gates that no machine's mood moves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_full_drain_stays_within_its_statements_and_commands(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "counts", "--quick", "--results", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    files = list(tmp_path.glob("*.json"))
    assert files, run.stdout + run.stderr
    figures = {line["work"].partition(",")[0]: line["figure"] for line in json.loads(files[0].read_text())["lines"]}
    assert figures["SQL statements per item"] <= 0.05
    assert figures["Redis commands per item"] <= 0.3
    # The bar of 1 % is the benchmark's, for a drain that is over before the next look of the poller.
    assert figures["wasted pops: jobs popped with nothing to do"] <= 20
