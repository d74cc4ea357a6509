"""The example of the README, from an empty folder to the delivery."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.eventually import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart"
PLACE = (
    "import os, shop; from sqlalchemy import create_engine; "
    "shop.Order.__table__.create(create_engine(os.environ['DATABASE_URL'])); "
    "shop.place_order(os.environ['DATABASE_URL'], 'a bicycle')"
)


def test_the_quickstart_announces_an_order(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(EXAMPLE, folder)
    environment = {**os.environ, "DATABASE_URL": postgres_url, "REDIS_URL": redis_url}

    def run(*command: str) -> None:
        subprocess.run([sys.executable, *command], cwd=folder, env=environment, check=True, timeout=60)

    run("-m", "boxengine", "db", "create")
    run("-c", PLACE)
    output = folder / "output"
    with output.open("wb") as written:
        worker = subprocess.Popen(
            [sys.executable, "-m", "boxengine", "start"], cwd=folder, env=environment, stdout=written
        )
    try:
        eventually(lambda: output.read_text() == "order placed: 1 a bicycle\n")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0
    finally:
        worker.kill()
        worker.wait()
