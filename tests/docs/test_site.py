"""The documentation builds into a site, and every link in it leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.conftest import ServerLookup

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.xdist_group("site")  # built once


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, as ``make docs`` builds them."""
    pytest.importorskip("mkdocs", reason="pip install 'boxengine[docs]'")
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_without_a_broken_link(site: Path) -> None:
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} <= {page.stem for page in site.glob("*.html")}


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>")
    found = {tag for page in site.glob("*.html") for tag in fetched.findall(page.read_text())}
    assert found == set()


def test_the_search_works_in_pages_opened_from_the_folder(site: Path, server_lookup: ServerLookup) -> None:
    def search() -> str | None:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=server_lookup("chromium").address, args=["--no-sandbox"], timeout=60_000
            )
            page = browser.new_page()
            page.goto((site / "deploying.html").as_uri())
            page.keyboard.press("/")
            page.keyboard.type("dead letter")
            found = page.locator(".md-search-result__link[href*='kafka.html']").first
            found.wait_for()
            address = found.get_attribute("href")
            browser.close()
            return address

    # A thread may have one Playwright only, and the console's tests have one for the whole session in the main thread.
    with ThreadPoolExecutor(1) as thread:
        assert "kafka.html" in (thread.submit(search).result() or "")


def test_the_index_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "index.md").read_text()))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert linked == pages, f"docs/index.md should lead to {', '.join(sorted(pages - linked)) or 'what is there only'}"


def test_the_readme_leads_to_pages_that_are_there() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert {"docs/cli.md", "docs/configuration.md"} <= linked
    assert all((ROOT / page).exists() for page in linked)
