"""``boxengine db reposition``: a log box that has come to another server, as an operator meets it."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.cli.project import Project

BOX, OTHER = "logged_outbox_item", "order_outbox_item"
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


def test_where_nothing_has_moved_nothing_is_done(project: Project) -> None:
    project.call("create", BOX, "--event-key", "1", "--payload", "x")
    assert f"{BOX}: the positions are this server's already" in project.call("db", "reposition", BOX)
    assert project.counts(f"{BOX}s") == {}


def test_a_box_without_a_log_and_one_that_is_not_there_are_refused(project: Project) -> None:
    project.call("db", "reposition", OTHER, expect=2)
    assert f"box {OTHER} has storage: table, so there are no positions" in project.errors
    project.call("db", "reposition", "nobodys_item", expect=2)
    assert "nobodys_item" in project.errors
