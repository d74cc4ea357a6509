"""``boxengine items`` as a user types it, over a real PostgreSQL and a real Valkey."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
from rich.console import Console

from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.cli import items_acting, items_replaying
from boxengine.engine import item_actions, replaying
from tests import prepared
from tests.cli.project import Project, first_deliveries_in_order
from tests.eventually import eventually

BOX = "order_outbox_item"
SOME_HOURS = "created_at = now() - interval '5 hours'"


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.call("db", "create")
    return project


@pytest.fixture
def failed(project: Project) -> Project:
    """Ten items with the ids 1 to 10, of the keys 0 to 4 twice; 1 to 6 have failed."""
    project.fill(10, keys=5)
    log = "2026-01-01T00:00:00.000000Z kafka: why"
    project.execute(f"UPDATE order_outbox_items SET status = 1, errors_count = 4, error_log = '{log}' WHERE id <= 6")
    return project


def fussy(folder: Path, *, refused: str, database: str, redis: str, more: str = "") -> Project:
    """A project whose transport refuses these keys until told otherwise."""
    (folder / "refused").write_text(refused)
    project = Project(folder, database=database, redis=redis, transports=f"transports.Fussy: {{folder: '{folder}'}}")
    project.config.write_text(project.config.read_text() + more)
    project.run("db", "create")
    return project


def answer(project: Project, *arguments: str) -> Any:
    return json.loads(project.call("items", *arguments, "--json"))


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────


def test_list_filters_and_pages(failed: Project) -> None:
    failed.execute(f"UPDATE order_outbox_items SET {SOME_HOURS} WHERE id IN (2, 7)")
    ids = {
        "--status failed": [1, 2, 3, 4, 5, 6],
        "--status failed --status pending --limit 2": [1, 2],
        "--limit 2 --after 8": [9, 10],
        "--ids 3,9": [3, 9],
        "3 9": [3, 9],
        "--event-key 1": [2, 7],
        "--to PT3H": [2, 7],
        "--from PT3H --status pending": [8, 9, 10],
        "--from 2001-01-01 --to 2001-02-01T12:00:00+02:00": [],
    }
    for options, expected in ids.items():
        assert [row["id"] for row in answer(failed, "list", BOX, *options.split())] == expected, options


def test_list_shows_a_table_and_tells_of_the_next_page(failed: Project) -> None:
    shown = failed.call("items", "list", BOX, "--limit", "2", "--status", "failed")
    assert "│ kafka: why " in shown
    assert "--after 2" in failed.errors
    assert "no such items" in failed.call("items", "list", BOX, "--event-key", "nobody")


@pytest.mark.parametrize("width", [20, 80, 120, 500])
def test_a_list_cuts_nothing_off_however_narrow_the_terminal_is(
    failed: Project, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    failed.execute(
        "UPDATE order_outbox_items SET id = id + 123456789000, event_key = 'customer-' || id, event_name = 'placed'"
    )
    out = io.StringIO()
    monkeypatch.setattr("boxengine.cli.items_looking.output", lambda: Console(file=out, width=width))
    failed.call("items", "list", BOX, "--status", "failed", "--limit", "2")
    shown = " ".join(out.getvalue().split())
    for number in (1, 2):
        parts = (f"12345678900{number}", "failed", f"customer-{number}", "placed", "kafka: why")
        assert all(part in shown for part in parts), shown
    assert max(map(len, out.getvalue().splitlines())) <= max(width, len("  event_key customer-1,"))


def test_of_an_item_that_failed_under_sbmt_outbox_the_list_shows_the_reason(project: Project) -> None:
    project.fill(1)
    log = r"E'-----\n2026-01-31 12:00:00 +0300 \n broker is down\n /app/services/produce.rb:12'"
    project.execute(f"UPDATE order_outbox_items SET status = 1, errors_count = 4, error_log = {log}")
    assert "broker is down" in project.call("items", "list", "order_outbox_item")


def test_a_list_in_a_pipe_has_one_line_for_each_item(project: Project) -> None:
    create = project.boxes().create_outbox_item
    with project.engine() as engine, engine.begin() as connection:
        create(connection, BOX, event_key="k" * 250, event_name="e" * 250, payload=b"")
    piped = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    shown = prepared.run(["-m", "boxengine", "items", "list", BOX], cwd=project.folder, env=piped).stdout.decode()
    assert "k" * 250 in shown
    assert "e" * 250 in shown


def test_what_the_encoding_of_the_terminal_lacks_is_shown_as_escapes(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.execute("ALTER TABLE order_outbox_items ALTER COLUMN options TYPE json USING options::json")
    project.run("create", BOX, "--event-key", "é", "--payload", "naïve")
    project.execute("""UPDATE order_outbox_items SET options = '{"a": "\\ud800"}'""")
    assert json.loads(project.run("items", "show", BOX, "1", "--json"))["options"] == {"a": "\ud800"}
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert json.loads(project.run("items", "show", BOX, "1", "--json"))["payload"] == "naïve"
    assert "na\\xefve" in project.run("items", "show", BOX, "1")
    assert "\\xe9" in project.run("items", "list", BOX)


def test_an_item_whose_options_are_nested_too_deeply_for_python_is_shown_with_them_as_text(project: Project) -> None:
    deep = f'{{"a": {"[" * 3_000}{"]" * 3_000}}}'
    project.call("create", BOX, "--event-key", "7", "--payload", "x")
    project.execute(f"UPDATE order_outbox_items SET options = '{deep}'")
    assert deep in project.run("items", "show", BOX, "1")
    assert [item["options"] for item in json.loads(project.run("items", "list", BOX, "--json"))] == [deep]


def test_show_prints_a_text_with_spaces_and_joiners_of_any_language_as_text(project: Project) -> None:
    text = "10\u00a0EUR\r\n👨\u200d👩"
    project.call("create", BOX, "--event-key", "7", "--payload", text)
    assert text in project.call("items", "show", BOX, "1")
    project.call("create", BOX, "--event-key", "7", "--payload", "one line\rover another")
    assert "6f 6e 65" in project.call("items", "show", BOX, "2")


def test_show_prints_a_text_payload_as_text_and_another_as_hex(project: Project) -> None:
    project.call("create", BOX, "--event-key", "7", "--payload", '{"grüße": 1}', "--event-name", "placed")
    binary = json.dumps({"event_key": 8, "payload_base64": base64.b64encode(b"\x00\xff\x1b[31m" * 100).decode()})
    project.run("create", BOX, "--jsonl", "-", stdin=binary.encode())
    project.execute(
        "UPDATE order_outbox_items SET error_log = 'first line\nsecond \x1b[2J line', status = 1 WHERE id = 1"
    )
    shown = project.call("items", "show", BOX, "1")
    assert all(part in shown for part in ("failed", "placed", '{"grüße": 1}', "first line", "second \\x1b[2J line"))
    shown = project.call("items", "show", BOX, "--ids", "2")
    assert "payload (700 bytes)" in shown
    assert "00 ff 1b 5b 33 31 6d" in shown
    assert "444 more bytes" in shown
    assert "\x1b" not in shown
    assert answer(project, "show", BOX, "1")["payload"] == '{"grüße": 1}'
    assert base64.b64decode(answer(project, "show", BOX, "2")["payload_base64"]) == b"\x00\xff\x1b[31m" * 100


def test_show_of_an_item_that_is_not_there_exits_with_1(project: Project) -> None:
    project.call("items", "show", BOX, "5", expect=1)
    assert project.errors == "boxengine: order_outbox_item has no item 5\n"


# ── acting ───────────────────────────────────────────────────────────────────────────────────────────


def test_ids_that_are_left_alone_are_named_with_the_reason(failed: Project) -> None:
    failed.execute("UPDATE order_outbox_items SET status = 2 WHERE id = 4")
    assert "1 item retried" in failed.call("items", "retry", BOX, "2", "4", "7,99", "--yes")
    assert failed.errors == "left alone: 4 (delivered), 7 (pending), 99 (no such item)\n"
    assert "0 items deleted" in failed.call("items", "delete", BOX, "--ids", "2", "--yes")
    assert failed.errors == "left alone: 2 (pending)\n"
    assert "1 item replayed" in failed.call("items", "replay", BOX, "2", "4", "--yes")
    assert failed.errors == "left alone: 2 (pending)\n"


def test_a_dry_run_counts_and_changes_nothing(failed: Project) -> None:
    assert "6 items would be deleted" in failed.call("items", "delete", BOX, "--dry-run")
    assert answer(failed, "retry", BOX, "--dry-run", "--limit", "4") == {
        "box": BOX,
        "action": "retry",
        "items": 4,
        "dry_run": True,
    }
    assert failed.counts() == {0: 4, 1: 6}


@pytest.mark.parametrize(
    ("command", "after"),
    [
        ("retry", {0: 10}),
        ("discard", {0: 4, 3: 6}),
        ("delete", {0: 4}),
        ("delete --status pending", {1: 6}),
        ("discard --status pending --status failed", {3: 10}),
        ("delete --event-key 0", {0: 4, 1: 4}),
        ("delete --ids 2,4,8", {0: 4, 1: 4}),
        ("delete 2 4,8", {0: 4, 1: 4}),
        ("discard 2 --ids 4", {0: 4, 1: 4, 3: 2}),
        ("retry 2", {0: 5, 1: 5}),
        ("retry --limit 1", {0: 5, 1: 5}),
    ],
)
def test_an_action_changes_what_it_says_and_nothing_else(failed: Project, command: str, after: dict[int, int]) -> None:
    verb, *options = command.split()
    told = answer(failed, verb, BOX, *options, "--yes")
    assert failed.counts() == after
    assert told["left"] == 0
    assert told["changed"] == told["items"] > 0


def test_without_a_terminal_and_without_yes_nothing_is_done_and_a_hint_given(failed: Project) -> None:
    failed.call("items", "delete", BOX, expect=2)
    assert "--yes" in failed.errors
    assert "--dry-run counts" in failed.errors
    assert failed.counts() == {0: 4, 1: 6}


@pytest.mark.parametrize(
    ("typed", "code", "after"), [("n\n", 1, {0: 4, 1: 6}), ("y\n", 0, {0: 4, 3: 6}), ("", 1, {0: 4, 1: 6})]
)
def test_on_a_terminal_it_asks_first_and_shows_how_far_it_is(
    failed: Project, typed: str, code: int, after: dict[int, int]
) -> None:
    screen, exit_code = on_a_terminal(failed, ["items", "discard", BOX], typed or "\x04")
    assert (exit_code, failed.counts()) == (code, after)
    assert "discard 6 items?" in screen
    assert ("6/6" in screen) is (code == 0)
    assert "Traceback" not in screen


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("retry {box} --status delivered", "pending, failed, discarded"),
        ("discard {box} --status delivered", "pending, failed"),
        ("list {box} --status lost", "lost"),
        ("list {box} --from yesterday", "PT1H"),
        ("list {box} --ids 1,x", "1,2,3"),
        ("show {box} 9223372036854775808", "9223372036854775807"),
        ("list {box} --after 9223372036854775808", "9223372036854775807"),
        ("show {box}", "boxengine: the item's ID is needed; boxengine items list shows them"),
        ("retry {box}", "boxengine: --yes is needed to retry without a terminal; --dry-run counts"),
        ("list", "Missing argument 'BOX'"),
        ("list nope", "known boxes: order_outbox_item"),
        ("retry nope --yes", "known boxes: order_outbox_item"),
    ],
)
def test_what_makes_no_sense_exits_with_2_and_says_what_would(project: Project, command: str, hint: str) -> None:
    project.call("items", *command.format(box=BOX).split(), expect=2)
    assert hint in project.errors


def test_a_table_that_is_missing_is_one_line_and_exit_1(project: Project) -> None:
    project.execute("DROP TABLE order_outbox_items")
    project.call("items", "retry", BOX, "--yes", expect=1)
    assert "boxengine db create" in project.errors
    assert len(project.errors.splitlines()) == 1


# ── with a worker at work ────────────────────────────────────────────────────────────────────────────


def test_thousands_of_failed_items_are_delivered_after_a_retry_while_a_worker_runs(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = fussy(tmp_path, refused="*", database=postgres_url, redis=redis_url)
    project.fill(5000)
    with project.worker() as worker:
        eventually(lambda: project.counts() == {1: 5000})
        (tmp_path / "refused").write_text("")
        assert "5,000 items retried" in project.run("items", "retry", BOX, "--yes")
        eventually(lambda: project.counts() == {2: 5000})
        assert worker.stop() == 0
    assert len({line["id"] for line in project.deliveries()}) == len(project.deliveries()) == 5000


@pytest.mark.parametrize("verb", ["retry", "discard", "delete"])
def test_under_strict_order_by_key_the_followers_of_a_parked_key_go_on_in_order(
    tmp_path: Path, postgres_url: str, redis_url: str, verb: str
) -> None:
    strict = "    strict_order: key\n    max_retries: 0\n"
    project = fussy(tmp_path, refused="3", database=postgres_url, redis=redis_url, more=strict)
    committed = project.fill(2000, keys=10)
    with project.worker() as worker:
        eventually(lambda: project.counts() == {0: 199, 1: 1, 2: 1800})
        (tmp_path / "refused").write_text("")
        assert ": 1 item " in project.run("items", verb, BOX, "--event-key", "3", "--yes")
        eventually(lambda: project.counts().get(0) is None, what="all followers delivered")
        assert worker.stop() == 0
    first, *followers = committed["3"]
    committed["3"] = [first, *followers] if verb == "retry" else followers
    assert first_deliveries_in_order(project.deliveries(), committed)


def test_what_redis_remembers_fails_no_item_that_was_never_tried(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = fussy(tmp_path, refused="", database=postgres_url, redis=redis_url)
    project.fill(2)
    meta = '{"version":1,"timestamp":1700000000,"errors_count":9,"error_msg":"no"}'
    with redis.Redis.from_url(redis_url) as client:
        client.mset({f"outbox:{BOX}:{number}": meta for number in (1, 2)})
    with project.worker() as worker:
        eventually(lambda: project.counts() == {2: 2})
        assert worker.stop() == 0


def test_a_retried_item_that_was_overtaken_is_discarded_again_unless_forced(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    latest = "    retry_strategies: [exponential_backoff, latest_available]\n"
    project = fussy(tmp_path, refused="0", database=postgres_url, redis=redis_url, more=latest)
    project.fill(1, keys=1)
    with project.worker() as worker:
        eventually(lambda: project.counts() == {1: 1})
        (tmp_path / "refused").write_text("")
        project.fill(1, keys=1)
        eventually(lambda: project.counts() == {1: 1, 2: 1})
        project.run("items", "retry", BOX, "--yes")
        eventually(lambda: project.counts() == {2: 1, 3: 1})
        assert [line["id"] for line in project.deliveries()] == [2]
        project.run("items", "retry", BOX, "--status", "discarded", "--force", "--yes")
        eventually(lambda: project.counts() == {2: 2})
        assert worker.stop() == 0
    assert [line["id"] for line in project.deliveries()] == [2, 1]


def on_a_terminal(project: Project, command: list[str], typed: str) -> tuple[str, int]:
    """Runs the command in a pseudo-terminal; what its screen showed, and its exit code."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "boxengine", *command],
        cwd=project.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "200", "TERM": "xterm"},
    )
    os.close(theirs)
    screen = b""
    try:
        while b"?" not in screen:
            screen += os.read(ours, 4096)
        os.write(ours, typed.encode())
        while process.poll() is None or screen:
            more = os.read(ours, 4096)
            screen += more
    except OSError:
        pass  # the terminal's other end is closed: the process has ended
    finally:
        os.close(ours)
    return screen.decode(), process.wait(timeout=60)


def deliver(project: Project, count: int) -> None:
    """Runs a worker until it has delivered so often, and marked every item; what a transport wrote is not yet committed."""
    with project.worker() as worker:
        eventually(lambda: len(project.deliveries()) == count and set(project.counts()) == {2})
        assert worker.stop() == 0


# ── once more ────────────────────────────────────────────────────────────────────────────────────────


def test_replayed_items_are_delivered_again_behind_those_of_their_key_and_marked(project: Project) -> None:
    project.fill(4, keys=2)
    deliver(project, 4)
    assert answer(project, "replay", BOX, "--event-key", "1", "--dry-run") == {
        "box": BOX,
        "action": "replay",
        "items": 2,
        "dry_run": True,
    }
    assert answer(project, "replay", BOX, "--event-key", "1", "--yes") == {
        "box": BOX,
        "action": "replay",
        "items": 2,
        "copied": 2,
    }
    deliver(project, 6)
    again = project.deliveries()[4:]
    assert [each["event_key"] for each in again] == ["1", "1"]
    assert all(each["headers"]["Replay-Of"] for each in again)


def test_what_overtakes_goes_out_before_what_waits_for_its_key_and_to_the_transport_that_is_named(
    project: Project,
) -> None:
    project.fill(1, keys=1)
    deliver(project, 1)
    project.fill(2, keys=1)
    project.call("items", "replay", BOX, "--ids", "1", "--transport", "ftp", "--yes", expect=2)
    assert "no transport 'ftp'" in project.errors
    replayed = answer(project, "replay", BOX, "--ids", "1", "--overtake", "--transport", "file", "--yes")
    assert replayed["copied"] == 1
    deliver(project, 4)
    assert [each["headers"]["Sequence-ID"] for each in project.deliveries()] == ["1", "1", "2", "3"]
    again = project.deliveries()[1]["headers"]
    assert again["Replay-Of"] == project.deliveries()[0]["headers"]["Idempotency-Key"] != again["Idempotency-Key"]


def interrupt_at(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Somebody presses Ctrl-C whenever a batch reaches this method of ``SqlItems``."""
    method = getattr(SqlItems, name)

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return method(*arguments)

    monkeypatch.setattr(SqlItems, name, interrupted)


def test_a_replay_that_is_stopped_says_up_to_which_id_it_has_copied(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.fill(5)
    project.execute("UPDATE order_outbox_items SET status = 2, processed_at = now()")
    monkeypatch.setattr(replaying, "BATCH", 2)
    interrupt_at(monkeypatch, "replay")
    before = signal.getsignal(signal.SIGINT)
    project.call("items", "replay", BOX, "--from", "P1D", "--yes", expect=1)
    assert project.errors == "boxengine: stopped; copied: 2 of 5 items, up to id 2; for the rest: --after 2 --limit 3\n"
    assert project.counts() == {0: 2, 2: 5}
    assert signal.getsignal(signal.SIGINT) is before
    monkeypatch.undo()
    project.execute("CREATE UNIQUE INDEX once ON order_outbox_items ((options #>> '{headers,Replay-Of}'))")
    project.call("items", "replay", BOX, "--from", "P1D", "--after", "2", "--limit", "3", "--yes")
    assert project.counts() == {0: 5, 2: 5}


def test_an_action_that_is_stopped_says_how_many_items_it_has_done(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.fill(5)
    project.execute("UPDATE order_outbox_items SET status = 1")
    monkeypatch.setattr(item_actions, "BATCH", 2)
    interrupt_at(monkeypatch, "delete")
    before = signal.getsignal(signal.SIGINT)
    project.call("items", "delete", BOX, "--yes", expect=1)
    assert project.errors == "boxengine: stopped; done: 2 of 5 items; run the same command again for the rest\n"
    assert project.counts() == {1: 3}
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("verb", "command", "options"),
    [
        ("retry", items_acting, []),
        ("discard", items_acting, []),
        ("delete", items_acting, []),
        ("replay", items_replaying, ["--from", "PT1H"]),
    ],
)
def test_an_action_takes_no_more_items_than_its_question_has_counted(
    failed: Project, monkeypatch: pytest.MonkeyPatch, verb: str, command: ModuleType, options: list[str]
) -> None:
    status, left = (2, 10) if verb == "replay" else (1, 4)
    failed.execute(f"UPDATE order_outbox_items SET status = {status} WHERE id <= 6")

    def agree(question: str) -> None:
        assert f"{verb} 6 items?" in question
        failed.execute(f"UPDATE order_outbox_items SET status = {status} WHERE id > 6")

    monkeypatch.setattr(command, "refuse_without_terminal", lambda _verb: None)
    monkeypatch.setattr(command, "ask", agree)
    assert "6 items " in failed.call("items", verb, BOX, *options)
    assert failed.counts()[status] == left


def test_replay_needs_to_be_told_which_items_and_to_be_confirmed(project: Project) -> None:
    project.call("items", "replay", BOX, "--yes", expect=2)
    assert "too much" in project.errors
    project.call("items", "replay", BOX, "1", expect=2)
    assert "--yes" in project.errors
    project.call("items", "replay", BOX, "--ids", "1", "--option", "headers=1", "--yes", expect=2)
