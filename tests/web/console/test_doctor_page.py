"""The doctor's page answers at once, however long the servers take."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from boxengine.ports.people.checkup import Remark
from boxengine.web.console import pages
from boxengine.web.console.live import Live
from tests.eventually import eventually
from tests.web.console.conftest import Console

FULL = Remark(area="redis", text="Redis is full.", advice="Make room.")
FINE = Remark(area="redis", text="Redis has room.")


class Slow:
    """An examination that ends when it may."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.found = [FULL]
        self.begun = 0

    def look(self) -> list[Remark]:
        self.begun += 1
        found = self.found
        assert self.may_end.wait(60)
        return found


@pytest.fixture
def slow(console: Console, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    monkeypatch.setattr(pages, "PATIENCE", 0)
    examination = Slow()
    # Every examination is too old as soon as it is there.
    console.app.state.site.__dict__["doctor"] = Live(examination.look, every=0)
    yield examination
    examination.may_end.set()


def test_the_first_examination_is_waited_for_by_the_page_and_not_by_the_reader(console: Console, slow: Slow) -> None:
    browser = console.browser()
    for _ in range(3):
        page = browser.get("/doctor")
        assert page.status == 200
        assert "Checking the servers…" in page.text
        assert 'hx-get="/doctor"' in page.text, "it renews itself"
        assert "Nothing was found" not in page.text, "nobody knows yet"
    assert slow.begun == 1, "one examination serves all who wait"
    slow.may_end.set()
    eventually(lambda: "Redis is full." in browser.get("/doctor").text)


def test_the_last_findings_are_shown_with_their_age_while_a_new_examination_is_under_way(
    console: Console, slow: Slow
) -> None:
    browser = console.browser()
    slow.may_end.set()
    eventually(lambda: "Redis is full." in browser.get("/doctor").text)
    slow.may_end.clear()
    slow.found = [FINE]
    eventually(lambda: "checking again…" in (page := browser.get("/doctor").text) and "Redis is full." in page)
    slow.may_end.set()
    eventually(lambda: "Redis has room." in (page := browser.get("/doctor").text) and "Redis is full." not in page)


def test_a_recent_examination_is_not_repeated(console: Console) -> None:
    slow = Slow()
    slow.may_end.set()
    console.app.state.site.__dict__["doctor"] = Live(slow.look, every=3600)
    browser = console.browser()
    for _ in range(3):
        page = browser.get("/doctor").text
        assert "Redis is full." in page
        assert "hx-get" not in page
    assert slow.begun == 1
