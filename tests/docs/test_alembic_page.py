"""Alembic's page, from an empty folder to a check that finds nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.walk import BLOCK

PAGE = Path(__file__).parents[2] / "docs" / "alembic.md"
ONE_PROCESS = """
import shlex, sys
from alembic.config import main
for command in sys.stdin:
    main(shlex.split(command), prog="alembic")
"""
"""Types the commands, and spares a start for each."""


def test_the_page_on_alembic_works_as_it_is_written(tmp_path: Path, postgres_url: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    init, *commands = re.findall(r"^\$ alembic (.*)$", page, re.MULTILINE)

    def typed(*lines: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", ONE_PROCESS],
            cwd=tmp_path,
            env={**os.environ, "DATABASE_URL": postgres_url},
            input="\n".join(lines),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    typed(init)
    for _, title, text in BLOCK.findall(page):
        if title:
            (tmp_path / title).write_text(text)
    assert commands[-1] == "check"
    assert "No new upgrade operations detected." in typed(*commands)
    [migration] = (tmp_path / "migrations" / "versions").glob("*.py")
    assert "create_table('order_outbox_items'" in migration.read_text()
