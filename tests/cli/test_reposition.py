"""``boxengine db reposition``: a log box that has come to another server, as an operator meets it."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from tests.cli.project import Project

BOX, SHARED, OTHER = "logged_outbox_item", "shared_outbox_item", "order_outbox_item"
LOGGED = f"  {BOX}:\n    storage: log\n    transports: {{log: {{}}}}\n"


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more=LOGGED)
    project.call("db", "create")
    return project


def move(project: Project, url: str) -> None:
    """As a dump restored on another server leaves the positions."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"UPDATE {BOX}s_positions SET server = server - 1".encode())


def test_a_moved_box_goes_on_after_the_command_and_says_how_much_was_in_doubt(
    project: Project, postgres_url: str
) -> None:
    for key in ("1", "2"):
        project.call("create", BOX, "--event-key", key, "--payload", "x")
    move(project, postgres_url)
    assert f"{BOX}: going out by id: 2 items" in project.call("db", "reposition", BOX)
    assert project.counts(f"{BOX}s") == {0: 2}
    assert f"{BOX}: the positions are this server's already" in project.call("db", "reposition", BOX)


def test_status_counts_what_is_in_doubt_before_the_box_was_moved(project: Project, postgres_url: str) -> None:
    for key in ("1", "2"):
        project.call("create", BOX, "--event-key", key, "--payload", "x")
    move(project, postgres_url)
    assert [status["pending"] for status in json.loads(project.call("status", BOX, "--json"))] == [2]


def test_what_status_cannot_count_in_a_moment_is_unknown_and_it_says_how_it_is_counted(
    project: Project, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            f"INSERT INTO {BOX}s_log (uuid, event_key, bucket, payload) "
            "SELECT gen_random_uuid(), i, 0, '' FROM generate_series(1, 10000) AS i".encode()
        )
        connection.execute(f"UPDATE {BOX}s_positions SET passed = pg_current_snapshot(), high = 10000".encode())
    assert [status["pending"] for status in json.loads(project.call("status", BOX, "--json"))] == [0]
    move(project, postgres_url)
    assert [status["pending"] for status in json.loads(project.call("status", BOX, "--json"))] == [None]
    assert f"{BOX}: its log came from another server" in project.errors
    assert [status["pending"] for status in json.loads(project.call("status", BOX, "--exact", "--json"))] == [0]


def test_a_box_with_subscriptions_goes_by_the_name_that_a_worker_tells(project: Project, postgres_url: str) -> None:
    shared = f"  {SHARED}:\n    storage: log\n    subscriptions:\n"
    shared += "".join(f"      {name}: {{transports: {{log: {{}}}}}}\n" for name in ("billing", "search"))
    project.config.write_text(project.config.read_text() + shared)
    project.call("db", "create", SHARED)
    project.call("create", SHARED, "--event-key", "1", "--payload", "x")
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"UPDATE {SHARED}s_search_positions SET server = server - 1".encode())
    told = project.call("subscriptions", "skip-to", f"{SHARED}.search", "--dry-run", expect=1) + project.errors
    assert f"first: boxengine db reposition {SHARED}" in " ".join(told.split())
    assert f"{SHARED}: going out by id: 2 items" in project.call("db", "reposition", SHARED)
    assert f"{SHARED}.search: the positions are this server's already" in project.call(
        "db", "reposition", f"{SHARED}.search"
    )


def test_where_nothing_has_moved_nothing_is_done(project: Project) -> None:
    project.call("create", BOX, "--event-key", "1", "--payload", "x")
    assert f"{BOX}: the positions are this server's already" in project.call("db", "reposition", BOX)
    assert project.counts(f"{BOX}s") == {}


def test_a_box_without_a_log_and_one_that_is_not_there_are_refused(project: Project) -> None:
    project.call("db", "reposition", OTHER, expect=2)
    assert f"box {OTHER} has storage: table, so there are no positions" in project.errors
    project.call("db", "reposition", "nobodys_item", expect=2)
    assert "nobodys_item" in project.errors
