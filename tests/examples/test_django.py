"""The Django example and the first steps of docs/django.md, each from an empty folder to the delivery."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "django.md"
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


class Shop:
    """A Django project in a folder of its own."""

    def __init__(self, folder: Path, *, postgres: str, redis: str) -> None:
        self.folder = folder
        url = make_url(postgres)
        self._environ = {
            **os.environ,
            "PYTHONPATH": str(folder),
            "PGHOST": str(url.host),
            "PGPORT": str(url.port),
            "PGUSER": str(url.username),
            "PGDATABASE": str(url.database),
            "REDIS_URL": redis,
            "PROBES": "off",
        }

    def run(self, *command: str) -> None:
        done = subprocess.run(
            [sys.executable, *command], cwd=self.folder, env=self._environ, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def work_until(self, *lines: str) -> None:
        """Runs the worker until it has printed these."""
        printed = self.folder / "printed"
        with printed.open("wb") as written:
            worker = subprocess.Popen(
                [sys.executable, "manage.py", "boxengine", "start"], cwd=self.folder, env=self._environ, stdout=written
            )
        try:
            eventually(lambda: set(lines) <= {*printed.read_text().splitlines()})
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(timeout=60) == 0
        finally:
            worker.kill()
            worker.wait()


@pytest.fixture
def shop(tmp_path: Path, postgres_url: str, redis_url: str) -> Shop:
    return Shop(tmp_path, postgres=postgres_url, redis=redis_url)


def test_the_shop_announces_its_orders_and_sends_receipts(shop: Shop) -> None:
    shutil.copytree(ROOT / "examples" / "django", shop.folder, dirs_exist_ok=True)
    shop.run("manage.py", "makemigrations", "orders")
    shop.run("manage.py", "migrate")
    shop.run("manage.py", "shell", "-c", "from orders.services import *; pay(place_order('a bicycle'))")
    shop.work_until(
        'order_created 1 {"id": 1, "what": "a bicycle", "paid": false}',
        'order_updated 1 {"id": 1, "what": "a bicycle", "paid": true}',
        "receipt for order 1",
    )


def test_the_first_steps_of_the_guide_lead_to_a_delivery(shop: Shop) -> None:
    """Typed as they stand there, in their order, and tested as the page says."""
    first = GUIDE.read_text().partition("## Your first box")[2].partition("\n## ")[0]
    quiet = '\nBOXENGINE["probes"] = {"enabled": False}  # their port may be another test\'s\n'
    for language, block in FENCE.findall(first):
        if language == "python":  # the file's name stands in the first line
            target = shop.folder / block.partition("\n")[0].removeprefix("# ").partition(":")[0]
            with target.open("a") as file:
                file.write(block + (quiet if "BOXENGINE = " in block else ""))
            continue
        for line in block.splitlines():
            command = line.partition("#")[0].split(maxsplit=1)
            if "boxengine start" in line:
                shop.work_until('order_placed 1 {"id": 1, "what": "a bicycle"}')
            elif command[0] == "django-admin":
                shop.run("-m", "django", *command[1].split())
            elif "shell -c" in line:
                shop.run("manage.py", "shell", "-c", line.partition('"')[2].rpartition('"')[0])
            else:
                shop.run(*command[1].split())
    tests = (
        GUIDE.read_text().partition("## Tests")[2].partition("```python\n# orders/tests.py\n")[2].partition("```")[0]
    )
    (shop.folder / "orders" / "tests.py").write_text(tests)
    shop.run("manage.py", "test")
