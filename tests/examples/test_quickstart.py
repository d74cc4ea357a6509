"""The example of the README, by the commands of its own README, from an empty folder to the delivery."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.eventually import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart"
COMMANDS = re.compile(r"^(?:python|boxengine) .*?(?=\s+#|$)", re.MULTILINE)


def test_the_quickstart_announces_an_order(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(EXAMPLE, folder)
    environment = {**os.environ, "DATABASE_URL": postgres_url, "REDIS_URL": redis_url}

    programs = {"python": [sys.executable], "boxengine": [sys.executable, "-m", "boxengine"]}
    told = map(shlex.split, COMMANDS.findall((folder / "README.md").read_text(encoding="utf-8")))
    *before, start = ([*programs[program], *arguments] for program, *arguments in told)
    for command in before:
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=60)
    output = folder / "output"
    with output.open("wb") as written:
        worker = subprocess.Popen(start, cwd=folder, env=environment, stdout=written)
    try:
        eventually(lambda: output.read_text() == "order placed: 1 a bicycle\n")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0
    finally:
        worker.kill()
        worker.wait()
