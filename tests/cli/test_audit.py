"""``boxengine audit`` as a user types it, over real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import Project
from tests.eventually import eventually

BOX, TABLE = "order_outbox_item", "order_outbox_items"


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    made = Project(tmp_path, database=postgres_url, redis=redis_url)
    made.call("db", "create")
    return made


def deliver(project: Project, items: int) -> None:
    """By a worker."""
    with project.worker() as worker:
        eventually(lambda: project.counts().get(2, 0) == items)
        assert worker.stop() == 0


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_what_a_worker_delivered_is_all_in_order(project: Project) -> None:
    project.fill(3000)
    deliver(project, 3000)
    assert project.call("audit", BOX) == f"{BOX}: 3,000 rows: all in order\n"
    assert lines(project.call("audit", BOX, "--json")) == [
        {
            "kind": "summary",
            "box": BOX,
            "rows": 3000,
            "messages": 0,
            "foreign_messages": 0,
            "found": {},
            "complete": True,
            "notes": [],
        }
    ]


def test_findings_are_told_line_by_line_and_exit_with_1(project: Project) -> None:
    project.fill(200)
    project.execute(f"UPDATE {TABLE} SET bucket = 99 WHERE id = 7")
    assert project.call("audit", BOX, expect=1) == (
        "orphaned: item 7 (key 6) is in bucket 99, and the box has 0 to 15: nobody will deliver it\n"
        f"{BOX}: 200 rows: 1 orphaned\n"
    )
    finding, summary = lines(project.call("audit", BOX, "--json", expect=1))
    assert finding == {
        "kind": "orphaned",
        "item": 7,
        "key": "6",
        "detail": "is in bucket 99, and the box has 0 to 15: nobody will deliver it",
    }
    assert summary["found"] == {"orphaned": 1}


def test_keys_are_shown_as_they_are_and_cannot_write_to_the_terminal(project: Project) -> None:
    boxes = project.boxes()
    with project.engine() as engine, engine.begin() as connection:
        for key in ("tenant:a:42", "\x1b[2Jgone", "[red]7"):
            boxes.create_outbox_item(connection, BOX, event_key=key, payload=b"")
    project.execute(f"UPDATE {TABLE} SET bucket = 99")
    told = project.call("audit", BOX, expect=1)
    assert {line.partition(" is in")[0] for line in told.splitlines()[:3]} == {
        "orphaned: item 1 (key tenant:a:42)",
        r"orphaned: item 2 (key \x1b[2Jgone)",
        "orphaned: item 3 (key [red]7)",
    }


def test_it_stops_after_a_hundred_findings_or_as_many_as_one_likes(project: Project) -> None:
    project.fill(300)
    project.execute(f"UPDATE {TABLE} SET bucket = 99")
    told = project.call("audit", BOX, expect=1).splitlines()
    assert len(told) == 101
    assert told[-1].endswith("100 orphaned; stopped there (--limit)")
    *findings, summary = lines(project.call("audit", BOX, "--json", "--limit", "3", expect=1))
    assert (len(findings), summary["complete"]) == (3, False)
    assert len(project.call("audit", BOX, "--limit", "500", expect=1).splitlines()) == 301


def test_since_and_own_buckets_narrow_what_is_looked_at(project: Project) -> None:
    project.fill(10)
    project.execute(f"UPDATE {TABLE} SET bucket = bucket + 1 WHERE id <= 2")
    project.execute(f"UPDATE {TABLE} SET created_at = now() - interval '2 hours' WHERE id = 1")
    assert "10 rows: 2 orphaned" in project.call("audit", BOX, expect=1)
    assert "9 rows: 1 orphaned" in project.call("audit", BOX, "--since", "PT1H", expect=1)
    assert "10 rows: all in order" in project.call("audit", BOX, "--own-buckets")


def test_stuck_after_says_how_patient_one_is(project: Project) -> None:
    project.fill(2, keys=1)
    project.execute(
        f"UPDATE {TABLE} SET created_at = now() - interval '5 minutes', error_log = 'tried by hand'",
        f"UPDATE {TABLE} SET status = 2, processed_at = now() WHERE id = 2",
    )
    assert "all in order" in project.call("audit", BOX)
    assert "stuck: item 1 (key 0) has been due since" in project.call("audit", BOX, "--stuck-after", "60", expect=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["audit", "nope"], "unknown box 'nope'; known boxes: order_outbox_item"),
        (["audit", BOX, "--since", "yesterday"], "expected a moment"),
        (["audit", BOX, "--limit", "0"], "--limit"),
        (["audit", BOX, "--stuck-after", "1e300"], "--stuck-after"),
        (["audit", BOX, "--topic", "orders"], "only used with --kafka"),
    ],
)
def test_wrong_usage_exits_with_2(project: Project, arguments: list[str], said: str) -> None:
    project.call(*arguments, expect=2)
    assert said in project.errors


@pytest.mark.parametrize(
    ("transports", "said"),
    [
        ("log: {}", f"box {BOX} has no kafka transport; name the topic that it feeds with --topic"),
        ('kafka: {topic: "orders.{event_name}", bootstrap_servers: x}', "depends on the item; name all its topics"),
        (
            "a: {class: kafka, topic: a, bootstrap_servers: x}, b: {class: kafka, topic: b, bootstrap_servers: y}",
            "Kafka transports of several clusters",
        ),
    ],
)
def test_topics_that_the_configuration_does_not_tell_are_asked_for(
    tmp_path: Path, transports: str, said: str, redis_url: str
) -> None:
    more = "kafka: {bootstrap_servers: x}" if "log" in transports else ""
    project = Project(
        tmp_path, database="postgresql://nobody@127.0.0.1:1/x", redis=redis_url, transports=transports, more=more
    )
    project.call("audit", BOX, "--kafka", expect=2)
    assert said in project.errors


def test_a_topic_of_no_known_cluster_is_not_read(tmp_path: Path, redis_url: str) -> None:
    project = Project(tmp_path, database="postgresql://nobody@127.0.0.1:1/x", redis=redis_url, transports="log: {}")
    project.call("audit", BOX, "--kafka", "--topic", "orders", expect=2)
    assert f"box {BOX} has no bootstrap_servers: give kafka.bootstrap_servers in a configuration" in project.errors


@pytest.mark.parametrize("servers", ["bootstrap_servers: SERVERS", "config: {bootstrap.servers: SERVERS}"])
def test_with_kafka_what_a_worker_sent_is_compared_message_by_message(
    tmp_path: Path, postgres_url: str, redis_url: str, real_kafka: str, kafka_topic: str, servers: str
) -> None:
    transport = f'kafka: {{topic: "{kafka_topic}", {servers.replace("SERVERS", repr(real_kafka))}}}'
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports=transport)
    project.call("db", "create")
    project.fill(500)
    deliver(project, 500)
    assert project.call("audit", BOX, "--kafka") == f"{BOX}: 500 rows, 500 messages: all in order\n"
    project.execute(f"DELETE FROM {TABLE} WHERE id = 9", f"UPDATE {TABLE} SET uuid = gen_random_uuid() WHERE id = 10")
    *findings, summary = lines(project.call("audit", BOX, "--kafka", "--topic", kafka_topic, "--json", expect=1))
    assert sorted((each["kind"], each["item"]) for each in findings) == [
        ("missing", 10),
        ("orphaned", 9),
        ("orphaned", 10),
    ]
    assert (summary["rows"], summary["messages"]) == (499, 500)


def test_a_database_that_does_not_answer_is_one_line_and_exit_1(tmp_path: Path, redis_url: str) -> None:
    project = Project(tmp_path, database="postgresql://nobody@127.0.0.1:1/x", redis=redis_url)
    project.call("audit", BOX, expect=1)
    assert project.errors.startswith("boxengine: the database: ")
    assert "Traceback" not in project.errors


def test_it_explains_itself(project: Project) -> None:
    said = project.call("audit", "--help")
    for option in ("--kafka", "--topic", "--since", "--stuck-after", "--own-buckets", "--limit", "--json"):
        assert option in said
