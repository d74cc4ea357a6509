"""One Chromium for all tests, a console on a loopback port, and pages that report what went wrong in them."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from boxengine.app.overview.sparing import SELDOM
from tests.conftest import ServerLookup
from tests.web.console.conftest import OPERATE, Console, make_console  # noqa: F401 - a fixture

AXE = (Path(__file__).parent / "axe-4.14.1.min.js").read_text()
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ROOT = Path(__file__).parents[3]
DOCUMENTATION = "".join(page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
PHONE, DESK = 375, 1440
LONGER_THAN_A_FIGURE_IS_SPARED = 1.5 * SELDOM * 1000
"""Milliseconds. The console asks a busy machine seldom, and these tests make the machine busy."""
SEEN = "() => `${document.visibilityState}, ${document.readyState}\\n${document.body.innerText}`"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what the open tabs show to the report of a test that failed: a machine that nobody watches shows it to nobody else."""
    report = yield
    if call.when == "call" and report.failed:
        browser: Any = item.funcargs.get("chromium")
        for page in (page for context in browser.contexts for page in context.pages) if browser else ():
            try:
                report.sections.append((f"tab at {page.url}", page.evaluate(SEEN)))
            except Exception as error:
                report.sections.append((f"tab at {page.url}", repr(error)))
    return report


@pytest.fixture(scope="package")
def chromium(server_lookup: ServerLookup) -> Iterator[Any]:
    """The browser installed on the system; nothing is downloaded.

    It ends with this folder's tests: Playwright's event loop runs in their thread, where no other test could start one.
    """
    program = server_lookup("chromium").address
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page of the console in a browser."""

    page: Any
    url: str
    complaints: list[str] = field(default_factory=list)
    """The errors in the browser's own console."""

    def go(self, path: str) -> Tab:
        self.page.goto(self.url + path, wait_until="load")
        return self

    def sign_in(self, token: str = OPERATE, name: str = "Zoë") -> Tab:
        self.go("/login")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_label("Your name").fill(name)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(lambda url: not url.endswith("/login"))
        return self

    def faults(self, *, rules: Sequence[str] = ()) -> list[str]:
        """What axe finds serious or worse, and whether the page is wider than the screen.

        Args:
            rules: the axe rules to check; all if none is given.
        """
        self.page.evaluate(AXE)
        options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
        found = self.page.evaluate("options => axe.run(document, options)", options)
        faults = [
            f"{each['id']}: {each['help']}: {json.dumps([node['html'][:120] for node in each['nodes'][:3]])}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return faults + ([f"{wide} pixels too wide"] if wide > 0 else []) + self.complaints

    def shoot(self, name: str) -> None:
        """Takes a picture, if pictures are requested and a page of the documentation shows this one."""
        folder = os.environ.get("BOXENGINE_SCREENSHOTS")
        if folder and f"images/{name}.png" in DOCUMENTATION:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"{name}.png")


@dataclass
class Running:
    """A console that answers on a port."""

    console: Console
    url: str
    chromium: Any
    contexts: list[Any] = field(default_factory=list)

    def tab(self, *, width: int = DESK, scheme: str = "light", **options: Any) -> Tab:
        """A tab in its own browser."""
        tab = open_tab(self.chromium, self.url, width=width, scheme=scheme, **options)
        self.contexts.append(tab.page.context)
        return tab


def open_tab(chromium: Any, url: str, *, width: int = DESK, scheme: str = "light", **options: Any) -> Tab:
    """A tab in its own browser, opened at a console."""
    height = 900 if width == DESK else 740
    context = chromium.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce", **options
    )
    context.set_default_timeout(LONGER_THAN_A_FIGURE_IS_SPARED)
    tab = Tab(context.new_page(), url)
    tab.page.on("console", lambda said: tab.complaints.append(said.text) if said.type in ("error", "warning") else None)
    tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    return tab


@pytest.fixture
def serve(chromium: Any) -> Iterator[Callable[[Console], Running]]:
    """Serves consoles, each on its own port."""
    import uvicorn

    ends: list[Callable[[], None]] = []

    def start(console: Console) -> Running:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(console.app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        running = Running(console, f"http://127.0.0.1:{listener.getsockname()[1]}", chromium)

        def end() -> None:
            for context in running.contexts:
                context.close()
            server.should_exit = True
            thread.join(10)
            listener.close()

        ends.append(end)
        until = time.monotonic() + 10
        while not server.started and time.monotonic() < until:
            threading.Event().wait(0.01)
        return running

    yield start
    for end in reversed(ends):
        end()


@pytest.fixture
def running(serve: Callable[[Console], Running], make_console: Callable[..., Console], postgres_url: str) -> Running:  # noqa: F811 - it is that fixture
    """A console over an empty database."""
    return serve(make_console(postgres_url))
