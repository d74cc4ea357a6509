"""Five broken situations, each started by one command, and found and fixed with nothing but the console and
``docs/on-call.md``."""

from __future__ import annotations

import io
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from boxengine.app.overview import problems
from boxengine.demo.broken.drill import Drill
from boxengine.demo.broken.scene import BOX, Scene
from tests.eventually import eventually
from tests.servers.postgres import PostgresFromWheel
from tests.servers.promised import promised_servers, require
from tests.web.browser.conftest import Tab, open_tab

pytestmark = pytest.mark.xdist_group("browser")
PAGE = (Path(__file__).parents[3] / "docs" / "on-call.md").read_text()
ORDERS = "/boxes/order-outbox-item"


def section(kind: str) -> str:
    """What the page says of a kind of problem."""
    found = re.search(rf"^## {re.escape(kind)}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/on-call.md has no section {kind}"
    return found[1]


class Typed:
    """What somebody types into the terminal, line by line."""

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[str]:
        while line := self.lines.get():
            yield line


class Heard(io.StringIO):
    """What the drill says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def write(self, text: str) -> int:
        self.lines.put(text)
        return len(text)


@dataclass
class Night:
    """A drill under way, and the tab of whoever is on call."""

    situation: str
    scene: Scene
    chromium: Any
    typed: Typed = field(default_factory=Typed)
    heard: Heard = field(default_factory=Heard)
    said: list[str] = field(default_factory=list)
    tab: Tab = field(init=False)
    playing: threading.Thread = field(init=False)

    def begin(self) -> None:
        self.playing = threading.Thread(target=self._play, daemon=True)
        self.playing.start()
        found = re.search(r"(http://\S+)/ +token: (\S+)", self.hear("token:"))
        assert found
        self.tab = open_tab(self.chromium, found[1], scheme="dark").sign_in(found[2])

    def hear(self, what: str) -> str:
        """The line of the terminal that says it."""
        while True:
            self.said.append(self.heard.lines.get(timeout=180))
            if what in self.said[-1]:
                return self.said[-1]
            assert self.said[-1], f"the drill ended: {self.said}"

    def type(self, line: str) -> None:
        """In the terminal."""
        self.typed.lines.put(f"{line}\n")
        self.hear("done")

    def sentence(self) -> str:
        self.tab.go("/")
        return str(self.tab.page.locator(".sentence, .fine").first.inner_text())

    def is_over(self) -> None:
        """The console says that all is well, and so does the drill."""
        self.hear("Fixed: the console says that all is well.")
        assert "All is well" in self.sentence()
        self.typed.lines.put("\n")
        self.playing.join(60)
        assert not self.playing.is_alive()

    def end(self) -> None:
        """Brings the scene back in order, for the next situation."""
        self.scene.kill_worker()
        self.scene.end_forgotten()
        self.scene.kill_redis()
        self.scene.start_redis()
        self.scene.receiver.start()
        self.typed.lines.put("")
        self.playing.join(60)
        table = f"{BOX}s"
        self.scene.run_sql(f"ALTER TABLE {table} RESET (autovacuum_enabled)")
        self.scene.run_sql(f"TRUNCATE {table} RESTART IDENTITY")
        if hasattr(self, "tab"):
            self.tab.page.context.close()

    def _play(self) -> None:
        try:
            Drill(self.situation, lines=self.typed, out=self.heard).play(self.scene)
        finally:
            self.heard.lines.put("")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The servers, the receiver and the console of all situations: starting them takes longer than a situation does."""
    require(PostgresFromWheel().offer(), promised_servers(os.environ))
    folder = Path(tempfile.mkdtemp(prefix="boxengine-drills-"))
    folder.chmod(0o755)  # PostgreSQL runs under an account of its own where this process is root
    found = Scene(folder)
    with pytest.MonkeyPatch.context() as patched:
        for name in ("DATABASE", "REDIS", "RECORD", "TOKEN", "RECEIVER"):
            patched.setenv(f"BOXENGINE_DEMO_{name}", "")  # what the scene sets goes with it
        try:
            found.set_up()
            yield found
        finally:
            found.tear_down()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def night(chromium: Any, scene: Scene) -> Iterator[Callable[[str], Night]]:
    """Has a situation come about."""
    begun: list[Night] = []

    def start(situation: str) -> Night:
        found = Night(situation, scene, chromium)
        begun.append(found)
        found.begin()
        return found

    yield start
    for each in begun:
        each.end()


def test_one_command_starts_a_drill_and_says_when_it_is_fixed() -> None:
    require(PostgresFromWheel().offer(), promised_servers(os.environ))
    command = [sys.executable, "-m", "boxengine", "demo", "--broken", "no-worker"]
    done = subprocess.run(
        command, input="\n\n", text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"http://\S+/ +token: \S+", done.stdout)
    assert "Fixed: the console says that all is well." in done.stdout


def test_the_page_tells_of_every_kind_of_problem() -> None:
    source = Path(problems.__file__).read_text()
    kinds = set(re.findall(r'kind="([a-z-]+)"', source)) | {
        "database",
        "redis",
        "parked",
        "held-back",
        problems.NO_WORKER,
    }
    for kind in kinds:
        section(kind)
        assert f"(#{kind})" in PAGE, f"the table does not lead to {kind}"


def test_the_receiver_is_down(night: Callable[[str], Night]) -> None:
    call = night("receiver")
    sentence = call.sentence()
    assert sentence.startswith("billing of order_outbox_item has not reached its receiver for ")
    assert "Connection refused" in sentence
    assert sentence.endswith("40 items wait.")
    call.tab.shoot("on-call-receiver")
    assert "There is nothing to press" in section("receiver")
    call.type("")
    call.is_over()


def test_a_poison_item_holds_back_its_key(night: Callable[[str], Night]) -> None:
    call = night("poison")
    page = call.tab.page
    told = "3 items of key 17 wait for item 1, which failed 3 times: 422 unknown currency GOLD"
    eventually(lambda: call.sentence() == told, what=told)
    call.tab.shoot("on-call-poison")
    page.get_by_role("link", name="Item 1 of").click()
    assert "3 items of its key wait for it." in page.locator(".why").inner_text()
    eventually(lambda: page.reload() and page.locator(".attempts li").count() == 3)
    assert page.locator(".attempts li").all_inner_texts()[0].endswith("billing: 422 unknown currency GOLD")
    call.tab.shoot("on-call-poison-item")
    assert "**Discard** it" in section("parked")
    page.get_by_role("button", name="Discard").click()
    assert "It will not be delivered" in page.locator(".ask").inner_text()
    page.get_by_role("button", name="Discard 1 item").click()
    page.locator(".outcome", has_text="1 item discarded").wait_for()
    call.is_over()


def page_state(call: Night) -> str:
    return str(call.tab.page.locator("td[data-label=State]").first.inner_text())


def test_no_worker_runs(night: Callable[[str], Night]) -> None:
    call = night("no-worker")
    assert call.sentence() == "No worker runs for order_outbox_item, and 40 items wait."
    assert page_state(call) == "no worker"
    call.tab.shoot("on-call-no-worker")
    assert "`boxengine start` must run" in section("no-worker")
    call.type("")
    call.is_over()


def test_an_old_transaction_keeps_dead_rows(night: Callable[[str], Night]) -> None:
    call = night("vacuum")
    page = call.tab.page

    def sentences() -> list[str]:
        call.tab.go("/")
        return [str(each) for each in page.locator(".sentence").all_inner_texts()]

    def both() -> list[str]:
        # The rows of the situations before count as well, as soon as their sessions have told the statistics of them.
        found = sentences()
        dead = any(re.search(r"60,[01]\d\d dead rows and 30,[01]\d\d living ones", each) for each in found)
        return found if dead and any("monthly report" in each for each in found) else []

    found = eventually(both, what="the old transaction and the dead rows")
    assert "A transaction has been open for" in found[0]
    call.tab.shoot("on-call-vacuum")
    advice = dict(zip(found, page.locator(".advice").all_inner_texts(), strict=True))
    assert "run the statement that the advice gives" in section("vacuum")
    told_to = (("monthly report", r"SELECT pg_terminate_backend\(\d+\)"), ("dead rows and", r"VACUUM \S+\w"))
    for word, statement in told_to:
        (told,) = [text for sentence, text in advice.items() if word in sentence]
        given = re.search(statement, told)
        assert given, told
        call.type(given[0])
        eventually(lambda: not any("monthly report" in each for each in sentences()))
    call.is_over()


def test_redis_is_lost(night: Callable[[str], Night]) -> None:
    call = night("redis")
    assert re.fullmatch(
        r"Redis does not answer, so nothing is delivered: Error \d+ connecting .*[^.]\.", call.sentence()
    )
    call.tab.shoot("on-call-redis")
    delivered = call.tab.page.locator("td[data-label=Pending]").first.inner_text()
    assert delivered.isdigit(), "the counts on the page are still there"
    assert "Bring Redis back, empty if need be" in section("redis")
    call.type("")
    call.is_over()
