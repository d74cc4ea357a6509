"""The documentation builds into a site, and every link in it leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_broken_link(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="pip install 'boxengine[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} <= {
        page.stem for page in (tmp_path / "site").glob("*.html")
    }


def test_the_index_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "index.md").read_text()))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert linked == pages, f"docs/index.md should lead to {', '.join(sorted(pages - linked)) or 'what is there only'}"


def test_the_readme_leads_to_pages_that_are_there() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert {"docs/cli.md", "docs/configuration.md"} <= linked
    assert all((ROOT / page).exists() for page in linked)
