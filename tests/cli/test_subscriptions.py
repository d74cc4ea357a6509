"""``boxengine subscriptions``, as an operator uses it."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
import redis

from boxengine.adapters.redis.failures import RedisFailures
from boxengine.adapters.redis.trail import RedisTrail
from boxengine.adapters.system import SystemClock
from boxengine.domain.box import Box, BoxType
from boxengine.ports import RememberedFailure
from tests.cli.project import Project

BOX = "sale_outbox_item"
BILLING, SEARCH = f"{BOX}.billing", f"{BOX}.search"
SHARED = (
    f"  {BOX}:\n    storage: log\n    subscriptions:\n"
    "      billing: {transports: {log: {}}}\n      search: {transports: {log: {}}}\n"
)


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more=SHARED)
    project.call("db", "create")
    for key in ("1", "2", "3"):
        project.call("create", BOX, "--event-key", key, "--payload", "x")
    return project


def waiting(project: Project) -> dict[str, int]:
    return {row["subscription"]: row["pending"] for row in json.loads(project.call("subscriptions", "list", "--json"))}


def trail(project: Project, redis_url: str) -> list[tuple[str, str, str]]:
    with redis.Redis.from_url(redis_url) as client:
        return [(deed.action, deed.box, deed.outcome) for deed in RedisTrail(client).latest(10)]


def test_the_list_shows_what_waits_for_each(project: Project) -> None:
    assert waiting(project) == {BILLING: 3, SEARCH: 3}
    assert [row["box"] for row in json.loads(project.call("status", BOX, "--json"))] == [BILLING, SEARCH]
    shown = project.call("subscriptions", "list", BOX)
    assert BILLING in shown
    assert SEARCH in shown
    assert BILLING not in project.call("subscriptions", "list", SEARCH)
    project.call("subscriptions", "list", "nope_outbox_item", expect=2)
    assert BILLING in project.errors


def test_a_log_box_without_subscriptions_is_listed_sent_back_and_ahead_by_its_own_name(project: Project) -> None:
    plain = "plain_outbox_item"
    project.config.write_text(
        project.config.read_text() + f"  {plain}:\n    storage: log\n    transports: {{log: {{}}}}\n"
    )
    project.call("db", "create", plain)
    project.call("create", plain, "--event-key", "1", "--payload", "x")
    (row,) = json.loads(project.call("subscriptions", "list", plain, "--json"))
    assert (row["subscription"], row["pending"]) == (plain, 1)
    assert waiting(project) == {BILLING: 3, SEARCH: 3, plain: 1}
    assert project.call("subscriptions", "skip-to", plain, "--yes") == f"{plain}: 1 item never goes out\n"
    assert (
        project.call("subscriptions", "rewind", plain, "--id", "1", "--yes") == f"{plain}: 1 item goes out once more\n"
    )
    assert waiting(project)[plain] == 1
    project.call("items", "replay", plain, "--ids", "1", "--yes", expect=2)
    assert f"boxengine subscriptions rewind {plain}" in " ".join(project.errors.split())


def test_nothing_is_sent_to_a_place_on_its_other_side(project: Project, redis_url: str) -> None:
    told = f"{SEARCH}: nothing to rewind: of the items from id 2 on, the log has none that it has passed"
    for option in "--yes", "--dry-run":
        assert project.call("subscriptions", "rewind", SEARCH, "--id", "2", option).startswith(told)
    assert json.loads(project.call("subscriptions", "rewind", SEARCH, "--id", "1", "--yes", "--json"))["items"] == 0
    project.call("subscriptions", "skip-to", SEARCH, "--id", "3", "--yes")
    assert "nothing to skip: no item waits in the log before id 2\n" in project.call(
        "subscriptions", "skip-to", SEARCH, "--id", "2"
    )
    assert waiting(project) == {BILLING: 3, SEARCH: 1}
    assert len(trail(project, redis_url)) == 1
    assert "2 items would go out once more" in project.call("subscriptions", "rewind", SEARCH, "--id", "1", "--dry-run")


def test_what_redis_remembers_of_failures_is_void_for_an_item_that_begins_anew(
    project: Project, postgres_url: str, redis_url: str
) -> None:
    shared = "id, uuid, event_key, bucket, payload"
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        stepped_aside = connection.execute(
            f"INSERT INTO sale_outbox_items_search ({shared}, errors_count) "
            f"SELECT {shared}, 1 FROM sale_outbox_items_log ORDER BY id LIMIT 1 RETURNING id".encode()
        ).fetchone()
    assert stepped_aside is not None
    (item,) = stepped_aside
    project.call("subscriptions", "skip-to", SEARCH, "--yes")
    read = {name: Box(name=name, type=BoxType.OUTBOX, table="unused") for name in (BILLING, SEARCH)}
    with redis.Redis.from_url(redis_url) as client:
        memory = RedisFailures(client, clock=SystemClock())
        for box in read.values():
            memory.remember(box, {item: RememberedFailure(2, "refused")}, ttl=timedelta(minutes=10))
        project.call("subscriptions", "rewind", SEARCH, "--time", "PT1H", "--yes")
        assert memory.recall(read[SEARCH], [item]) == {}
        assert set(memory.recall(read[BILLING], [item])) == {item}


def test_one_is_sent_ahead_and_back_and_the_other_stays(project: Project, redis_url: str) -> None:
    assert "3 items would never go out" in project.call("subscriptions", "skip-to", SEARCH, "--dry-run")
    assert waiting(project)[SEARCH] == 3
    assert "3 items never go out" in project.call("subscriptions", "skip-to", SEARCH, "--yes")
    assert waiting(project) == {BILLING: 3, SEARCH: 0}
    told = json.loads(project.call("subscriptions", "rewind", SEARCH, "--time", "PT1H", "--yes", "--json"))
    assert told == {"subscription": SEARCH, "action": "rewind", "items": 3, "at_least": False, "dry_run": False}
    assert waiting(project) == {BILLING: 3, SEARCH: 3}
    assert trail(project, redis_url)[:2] == [
        ("rewind", SEARCH, "3 items go out once more"),
        ("skip-to", SEARCH, "3 items never go out"),
    ]


def test_an_item_in_the_log_is_shown_with_what_each_has_done_of_it(project: Project) -> None:
    project.call("subscriptions", "skip-to", SEARCH, "--yes")
    assert "event_key     2" in project.call("items", "show", BILLING, "2")
    assert "waits in the log" in project.errors
    assert json.loads(project.call("items", "show", SEARCH, "2", "--json"))["status"] == "passed", "nobody delivered it"
    assert "keeps no outcome of single items" in " ".join(project.errors.split())
    shown = project.call("items", "show", SEARCH, "2")
    assert re.search("^status +passed$", shown, re.MULTILINE)
    assert "delivered" not in shown
    assert "no such items" in project.call("items", "list", BILLING)
    assert "items that wait in the log are not listed" in " ".join(project.errors.split())
    project.call("items", "show", BILLING, "99", expect=1)
    assert "has no item 99" in project.errors


@pytest.mark.parametrize("action", ["retry", "retry --force", "discard", "delete"])
def test_ids_that_stand_in_the_log_alone_are_left_there_and_it_is_said_where_they_are(
    project: Project, action: str
) -> None:
    project.call("subscriptions", "skip-to", SEARCH, "--id", "3", "--yes")
    assert "0 items" in project.call("items", *action.split(), SEARCH, "1", "3", "99", "--yes")
    assert project.errors == "left alone: 1 (passed in the log), 3 (waits in the log), 99 (no such item)\n"
    assert waiting(project) == {BILLING: 3, SEARCH: 1}


def test_where_one_box_is_needed_its_subscriptions_are_named(project: Project) -> None:
    project.call("items", "list", BOX, expect=2)
    assert f"box '{BOX}' has subscriptions: name one of them: {BILLING}, {SEARCH}" in " ".join(project.errors.split())


def test_without_a_terminal_nothing_is_done_unasked(project: Project) -> None:
    project.call("subscriptions", "skip-to", SEARCH, expect=2)
    assert "--yes is needed to " in project.errors
    project.call("subscriptions", "rewind", SEARCH, "--yes", expect=2)
    assert project.errors == "boxengine: --time or --id is needed\n"
    project.call("subscriptions", "rewind", SEARCH, "--id", "1", "--time", "PT1H", "--yes", expect=2)
    assert project.errors == "boxengine: --time cannot be combined with --id\n"
    assert waiting(project) == {BILLING: 3, SEARCH: 3}


def test_one_that_was_taken_out_of_the_file_stops_the_others_until_it_is_given_up(project: Project) -> None:
    project.call("subscriptions", "drop", SEARCH, "--yes", expect=2)
    assert "take it out of there first" in project.errors
    project.call("subscriptions", "drop", f"{BOX}.serch", "--yes", expect=1)
    told = f"there are no positions of {BOX}.serch; the log has those of {BILLING}, {SEARCH}"
    assert told in " ".join(project.errors.split())
    file = project.config.read_text()
    project.config.write_text("\n".join(line for line in file.splitlines() if "search:" not in line))
    assert f"boxengine subscriptions drop {SEARCH}" in project.call("db", "check", expect=1)
    told = "with 0 items that failed or waited, and 3 items that it has not read"
    assert f"would be given up, {told}" in project.call("subscriptions", "drop", SEARCH, "--dry-run")
    assert f": given up, {told}" in project.call("subscriptions", "drop", SEARCH, "--yes")
    assert "search" not in project.call("db", "check")
    assert waiting(project) == {BILLING: 3}


def test_one_that_is_given_up_and_comes_again_by_its_name_is_not_paused(project: Project) -> None:
    file = project.config.read_text()
    project.call("pause", SEARCH)
    project.call("pause", BILLING)
    project.config.write_text("\n".join(line for line in file.splitlines() if "search:" not in line))
    project.call("subscriptions", "drop", SEARCH, "--yes")
    project.config.write_text(file)
    project.call("db", "create")
    rows = json.loads(project.call("subscriptions", "list", "--json"))
    assert {row["subscription"]: row["paused"] for row in rows} == {BILLING: True, SEARCH: False}


def test_a_log_that_goes_to_subscriptions_or_back_may_leave_out_what_was_delivered(project: Project) -> None:
    """Retention keeps delivered items, and the next reader begins with the oldest."""
    plain = "plain_outbox_item"
    without = f"  {plain}:\n    storage: log\n    transports: {{log: {{}}}}\n"
    named = f"  {plain}:\n    storage: log\n    subscriptions:\n      billing: {{transports: {{log: {{}}}}}}\n"
    file = project.config.read_text()
    project.config.write_text(file + without)
    project.call("db", "create", plain)
    project.call("create", plain, "--event-key", "1", "--payload", "x")
    project.call("subscriptions", "skip-to", plain, "--yes")
    for read_by, by_whom, own in (f"{plain}.billing", plain, named), (plain, f"{plain}.billing", without):
        project.config.write_text(file + own)
        project.call("subscriptions", "drop", by_whom, "--dry-run")
        assert "oldest item" not in project.errors
        project.call("subscriptions", "drop", by_whom, "--yes")
        said = " ".join(project.errors.split())
        assert (
            f"nobody reads the log of {plain} now; who reads it next begins with its oldest item, delivered or not"
            in said
        )
        assert "before workers start: boxengine subscriptions skip-to NAME" in said
        project.call("db", "create", plain)
        assert waiting(project)[read_by] == 1
        assert project.call("subscriptions", "skip-to", read_by, "--yes") == f"{read_by}: 1 item never goes out\n"
        assert waiting(project)[read_by] == 0


def test_one_of_several_that_is_given_up_is_followed_by_no_advice(project: Project) -> None:
    project.config.write_text(project.config.read_text().replace("      search: {transports: {log: {}}}\n", ""))
    project.call("subscriptions", "drop", SEARCH, "--yes")
    assert project.errors == ""


def test_what_one_taken_out_of_the_file_stops_hides_no_other_box(project: Project) -> None:
    file = project.config.read_text().replace("      search: {transports: {log: {}}}\n", "")
    project.config.write_text(file + SHARED.replace("sale", "gift"))
    project.call("db", "create", "gift_outbox_item")
    project.call("create", "gift_outbox_item", "--event-key", "1", "--payload", "x")
    gift = "gift_outbox_item.billing"
    told = f"boxengine: box {BILLING}: {SEARCH} has a position in the log"
    for command, key in (("status",), "box"), (("subscriptions", "list"), "subscription"):
        rows = {row[key]: row for row in json.loads(project.call(*command, "--json", expect=1))}
        assert (rows[gift]["pending"], rows[gift]["error"]) == (1, None)
        assert rows[BILLING]["pending"] is None
        assert rows[BILLING]["error"] in project.errors
        shown = {line.split()[0]: line.split()[1:] for line in project.call(*command, expect=1).splitlines() if line}
        assert "1" in shown[gift]
        assert "-" in shown[BILLING]
        assert project.errors.startswith(told)
        assert project.errors.endswith(f"with: boxengine subscriptions drop {SEARCH}\n")
        assert len(project.errors.splitlines()) == 1


def test_a_box_of_rows_has_no_positions(project: Project) -> None:
    for command in (["skip-to", "--yes"], ["rewind", "--time", "PT1H", "--yes"], ["drop", "--yes"], ["list"]):
        action, *options = command
        project.call("subscriptions", action, "order_outbox_item", *options, expect=2)
        assert "has storage: table" in project.errors


def test_a_log_with_another_bucket_size_is_not_sent_to_a_command_that_refuses_it(project: Project) -> None:
    known = project.config.read_text()
    project.config.write_text(f"bucket_size: 64\n{known}")
    told = project.call("doctor", expect=1)
    assert "bucket_size is 64, but table 'sale_outbox_items_search' was filled with" in told
    assert "with storage: log it stays what it was" in told
    assert f"rebucket {SEARCH}" not in told
    project.config.write_text(known)


def test_what_a_log_cannot_do_is_bad_usage(project: Project) -> None:
    for command, said in (
        (["items", "replay", SEARCH, "1", "--yes"], "rewind sale_outbox_item.search"),
        (["items", "replay", BOX, "1", "--yes"], "subscriptions rewind sale_outbox_item"),
        (["audit", SEARCH], "no audit with storage: log"),
        (["audit", BOX], "no audit with storage: log"),
        (["db", "rebucket", SEARCH], "the bucket_size of a table stays what it was"),
        (["db", "rebucket", BOX], "the bucket_size of a table stays what it was"),
        (["db", "convert", BOX, "--to", "table"], "it has subscriptions"),
    ):
        project.call(*command, expect=2)
        assert said in " ".join(project.errors.split())
    assert waiting(project) == {BILLING: 3, SEARCH: 3}
