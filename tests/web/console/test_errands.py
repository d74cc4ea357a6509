"""What the console does in the background: with progress, to be cancelled, and written down however it ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.trail import MemoryTrail
from boxengine.adapters.sql.looking.inspection import SqlInspector
from boxengine.domain.box import Box, BoxType
from boxengine.errors import QueueUnavailable, StoreUnavailable
from boxengine.ports.people.inspection import Found
from boxengine.ports.people.trail import Deed
from boxengine.web.console import acting
from boxengine.web.console.errands import AT_ONCE, KEPT, Errand, Errands, State
from tests.web.console.conftest import READ, Console

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="items")
FAILED, DISCARDED = 1, 3
ROOT = Path(__file__).parents[3]


@pytest.fixture
def trail() -> MemoryTrail:
    return MemoryTrail()


@pytest.fixture
def errands(trail: MemoryTrail) -> Iterator[Errands]:
    made = Errands(trail, ManualClock())
    yield made
    for errand in made.latest():
        assert errand.ended.wait(10)


def outcome(trail: MemoryTrail) -> str:
    return trail.latest(1)[0].outcome


def test_an_errand_is_cancelled_between_two_batches_and_what_is_done_stays_done(
    errands: Errands, trail: MemoryTrail
) -> None:
    batches, begun = [100, 100, 100], threading.Event()
    go_on = threading.Event()
    done: list[int] = []

    def run(errand: Errand) -> str:
        for batch in batches:
            done.append(batch)
            begun.set()
            assert go_on.wait(10)
            errand.advance(batch)
        return "all"

    errand = errands.start(who="Zoë", action="retry", box=BOX, what="failed items", run=run)
    assert begun.wait(10)
    assert errand.state is State.RUNNING
    errand.cancel.set()
    go_on.set()
    assert errand.ended.wait(10)
    assert (done, errand.done, errand.state) == ([100], 100, State.CANCELLED)
    assert outcome(trail) == "cancelled after 100 items"


def test_when_the_console_stops_no_errand_begins_another_batch_and_those_that_wait_do_not_begin(
    errands: Errands, trail: MemoryTrail
) -> None:
    begun, go_on, done = threading.Barrier(AT_ONCE + 1), threading.Event(), list[str]()

    def run(errand: Errand) -> str:
        for _ in range(3):
            done.append(errand.what)
            if not go_on.is_set():
                begun.wait(10)
            assert go_on.wait(10)
            errand.advance(100)
        return "all"

    started = [errands.start(who="Zoë", action="retry", box=BOX, what=what, run=run) for what in ("a", "b", "c")]
    begun.wait(10)
    errands.cancel_all()
    go_on.set()
    assert all(errand.ended.wait(10) for errand in started)
    assert sorted(done) == ["a", "b"]
    assert [errand.outcome for errand in started] == ["cancelled after 100 items"] * AT_ONCE + [
        "cancelled after 0 items"
    ]
    assert {deed.outcome for deed in trail.latest(3)} == {errand.outcome for errand in started}, (
        "nothing ends without a word"
    )


def test_counts_hold_up_no_action(errands: Errands) -> None:
    go_on = threading.Event()
    counts = [
        errands.start(who="Zoë", action="count", box=BOX, what="", run=lambda _: str(go_on.wait(10)))
        for _ in range(AT_ONCE)
    ]
    action = errands.start(who="Zoë", action="retry", box=BOX, what="", run=lambda _: "done")
    assert action.ended.wait(5)
    assert not any(count.ended.is_set() for count in counts)
    go_on.set()


def test_an_application_that_exits_does_not_wait_for_the_end_of_an_action() -> None:
    program = """
import threading
from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.trail import MemoryTrail
from boxengine.web.console.errands import Errands
from tests.web.console.test_errands import BOX

class Aloud(MemoryTrail):
    def add(self, deed):
        print(deed.outcome, flush=True)

begun = threading.Event()

def run(errand):
    begun.set()
    while True:
        errand.cancel.wait(60)
        errand.advance(100)

errands = Errands(Aloud(), ManualClock())
errands.start(who="Zoë", action="retry", box=BOX, what="", run=run)
begun.wait(10)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, cwd=ROOT, capture_output=True, text=True, timeout=45
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "begun\ncancelled after 100 items\n", "")


def test_an_errand_that_breaks_off_says_how_far_it_came_and_that_it_can_be_done_again(
    errands: Errands, trail: MemoryTrail
) -> None:
    def run(errand: Errand) -> str:
        errand.advance(500)
        raise StoreUnavailable("the database: gone")

    errand = errands.start(who="Zoë", action="retry", box=BOX, what="failed items", run=run)
    assert errand.ended.wait(10)
    assert errand.state is State.FAILED
    assert outcome(trail).startswith("stopped after 500 items: the database: gone. What is done stays done")


@pytest.mark.parametrize("ended", ["cancelled", "stopped"])
def test_a_replay_that_breaks_off_says_what_the_same_action_would_send_twice(
    errands: Errands, trail: MemoryTrail, ended: str
) -> None:
    def run(errand: Errand) -> str:
        if ended == "cancelled":
            errand.cancel.set()
        errand.advance_replay(500, 1_234)
        raise StoreUnavailable("the database: gone")

    assert errands.start(who="Zoë", action="replay", box=BOX, what="items", run=run).ended.wait(10)
    assert outcome(trail).startswith(f"{ended} after 500 items")
    assert outcome(trail).endswith("; the same action would replay the items up to id 1234 a second time")


def test_passwords_in_the_error_that_ends_an_errand_are_masked(errands: Errands, trail: MemoryTrail) -> None:
    def run(_errand: Errand) -> str:
        raise StoreUnavailable("postgresql://shop:s3cret@db/shop: gone")

    assert errands.start(who="Zoë", action="retry", box=BOX, what="items", run=run).ended.wait(10)
    assert "s3cret" not in outcome(trail)


def test_while_redis_is_out_errands_run_and_the_log_has_the_trail(caplog: pytest.LogCaptureFixture) -> None:
    class Out(MemoryTrail):
        def add(self, deed: Deed) -> None:
            raise QueueUnavailable("refused")

    caplog.set_level("INFO", "boxengine.console")
    errand = Errands(Out(), ManualClock()).start(
        who="Zoë", action="retry", box=BOX, what="item 41", run=lambda _: "1 item retried"
    )
    assert errand.ended.wait(10)
    assert errand.state is State.DONE
    assert "Zoë: retry item 41 of order_outbox_item: 1 item retried" in caplog.messages


def test_counts_are_in_the_log_and_push_nothing_off_the_trail(
    errands: Errands, trail: MemoryTrail, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "boxengine.console")
    for action in ("discard", "count"):
        errand = errands.start(
            who="Zoë", action=action, box=BOX, what="all items", run=lambda errand: f"{errand.action} done"
        )
        assert errand.ended.wait(10)
    assert [(deed.action, deed.outcome) for deed in trail.latest(9)] == [
        ("discard", "discard done"),
        ("discard", "begun"),
    ]
    assert caplog.messages[-1] == "Zoë: count all items of order_outbox_item: count done"


def test_only_so_many_errands_are_remembered(errands: Errands) -> None:
    first = errands.start(who="Zoë", action="retry", box=BOX, what="", run=lambda _: "done")
    assert first.ended.wait(10)
    for _ in range(KEPT):
        assert errands.start(who="Zoë", action="retry", box=BOX, what="", run=lambda _: "done").ended.wait(10)
    errands.start(who="Zoë", action="retry", box=BOX, what="", run=lambda _: "done")
    assert errands.get(first.id) is None
    assert len(errands.latest()) <= KEPT + 2


def test_an_action_on_thousands_is_cancelled_from_a_page_and_the_same_one_does_the_rest(console: Console) -> None:
    ids = console.create(count=3_000)
    for item_id in (ids[0], ids[-1]):
        console.fail(item_id)
    client = console.client()
    path = "/api/boxes/order-outbox-item/actions"
    begun = client.post(path, {"action": "discard", "filter": {"status": "pending"}}).json
    client.post(f"/api/jobs/{begun['id']}/cancel")
    errand = console.app.state.site.errands.get(begun["id"])
    assert errand.ended.wait(30)
    client.post(path, {"action": "discard", "filter": {"status": "pending"}})
    last = console.app.state.site.errands.latest()[0]
    assert last.ended.wait(30)
    assert sorted(console.statuses().values()) == [FAILED] * 2 + [DISCARDED] * 2_998


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("items/count", {"filter": {"error": "nobody says this"}}),
        ("actions", {"action": "delete", "filter": {"status": "delivered", "error": "nobody says this"}}),
        ("actions", {"action": "replay", "filter": {"key": "nobody's"}}),
    ],
)
def test_a_search_that_finds_nothing_for_a_long_time_can_be_cancelled(
    console: Console, monkeypatch: pytest.MonkeyPatch, path: str, sent: dict[str, object]
) -> None:
    console.create()
    looking, over = threading.Event(), threading.Event()

    def find(*_: object, start: int, **__: object) -> Found:
        looking.set()
        return Found([], None if over.is_set() else start + 1)

    monkeypatch.setattr(SqlInspector, "find", find)
    monkeypatch.setattr(acting, "SOON", timedelta(0))
    client = console.client()
    begun = client.post(f"/api/boxes/order-outbox-item/{path}", sent).json
    assert looking.wait(30)
    client.post(f"/api/jobs/{begun['id']}/cancel")
    errand = console.app.state.site.errands.get(begun["id"])
    ended = errand.ended.wait(5)
    over.set()
    assert ended
    assert errand.outcome == "cancelled after 0 items"


def test_whoever_may_look_may_count_exactly(each_console: Console) -> None:
    each_console.create(count=1_500, event_key="a")
    each_console.create(count=3, event_key="b")
    reader = each_console.client(READ)
    for which, expected in ({}, 1503), ({"key": "a"}, 1500), ({"status": "failed"}, 0):
        begun = reader.post("/api/boxes/order-outbox-item/items/count", {"filter": which}).json
        assert each_console.app.state.site.errands.get(begun["id"]).ended.wait(30)
        plural = "" if expected == 1 else "s"
        assert reader.get(f"/api/jobs/{begun['id']}").json["outcome"] == f"exactly {expected:,} item{plural}"
    browser = each_console.browser(READ)
    assert browser.press("/", "/boxes/order-outbox-item/count", key="b").status == 303


def test_whoever_may_look_may_cancel_a_count_and_nothing_else(console: Console) -> None:
    site, go_on = console.app.state.site, threading.Event()
    box = console.boxes.box("order_outbox_item")

    def run(errand: Errand) -> str:
        assert go_on.wait(60)
        errand.advance(1)
        return "all"

    count, action = (
        site.errands.start(who="Zoë", action=each, box=box, what="", run=run) for each in ("count", "retry")
    )
    reader = console.browser(READ)
    assert "Cancel</button>" in reader.get(f"/jobs/{count.id}").text
    assert "Cancel</button>" not in reader.get(f"/jobs/{action.id}").text
    assert reader.press("/", f"/jobs/{action.id}/cancel").status == 403
    assert console.client(READ).post(f"/api/jobs/{action.id}/cancel").status == 403
    assert reader.post(f"/jobs/{count.id}/cancel", {}, form=True).status == 403, "without the form's token"
    assert reader.press("/", f"/jobs/{count.id}/cancel").status == 303
    assert console.client(READ).post(f"/api/jobs/{count.id}/cancel").status == 200
    go_on.set()
    assert count.ended.wait(10)
    assert action.ended.wait(10)
    assert (count.state, action.state) == (State.CANCELLED, State.DONE)
