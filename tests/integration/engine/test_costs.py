"""What a full drain sends to the servers: gates that no machine's mood moves, by the benchmark that counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_full_drain_stays_within_its_statements_commands_and_wasted_jobs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "counts", "--quick", "--results", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    # 0.05 statements per item and 1 % wasted pops are the bars of the benchmark itself.
    assert run.returncode == 0, run.stdout + run.stderr
    (file,) = tmp_path.glob("*.json")
    figures = {line["work"]: line["figure"] for line in json.loads(file.read_text())["lines"]}
    (commands,) = (figure for work, figure in figures.items() if work.startswith("Redis commands per item"))
    assert commands <= 0.2
