"""Whatever stands for an item's id, key or moment on the command line: an answer, or one line that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.project import Project

SLOW_SERVERS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
IDS = st.one_of(
    st.integers().map(str),
    st.lists(st.integers(-5, 10), max_size=5).map(lambda ids: ",".join(map(str, ids))),
    st.sampled_from(
        [str(2**63 - 1), str(2**63), str(10**30), "9" * 5000, "1e3", "1.5", "٣", "1;DROP TABLE x", "1 OR 1=1", "0x1"]
    ),
    st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=10),
    st.just("1," * 20_000 + "1"),
)
MOMENTS = st.sampled_from(
    [
        "P1D",
        "PT0S",
        "P999999999Y",
        "0001-01-01",
        "9999-12-31T23:59:59-14:00",
        "2026-01-01T00:00:00+99:00",
        "now",
        "",
        "'; --",
    ]
)
KEYS = st.one_of(
    st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20), st.just("x" * 5000)
)


@pytest.fixture(params=["postgres_url", "mysql_url"])
def project(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Project:
    project = Project(tmp_path, database=request.getfixturevalue(request.param), redis=redis_url)
    project.call("db", "create")
    project.fill(5)
    return project


def answers(project: Project, *arguments: str) -> bool:
    """Whether the command ended with 0, or with one line that somebody meant to write."""
    for code in (0, 1, 2):
        try:
            project.call(*arguments, expect=code)
        except AssertionError as error:
            if not str(error).startswith("exit "):
                raise
            continue
        return "tells where" not in project.errors and "Traceback" not in project.errors
    return False


@settings(max_examples=20, deadline=None, suppress_health_check=SLOW_SERVERS)
@given(action=st.sampled_from(["retry", "discard", "delete", "list"]), ids=IDS)
def test_any_ids_are_understood_or_refused(project: Project, action: str, ids: str) -> None:
    assert answers(
        project, "items", action, "order_outbox_item", f"--ids={ids}", *([] if action == "list" else ["--dry-run"])
    )
    assert project.counts() == {0: 5}


@settings(max_examples=20, deadline=None, suppress_health_check=SLOW_SERVERS)
@given(item_id=IDS)
def test_any_id_of_one_item_is_understood_or_refused(project: Project, item_id: str) -> None:
    assert answers(project, "items", "show", "order_outbox_item", "--", item_id)


@settings(max_examples=12, deadline=None, suppress_health_check=SLOW_SERVERS)
@given(key=KEYS, since=MOMENTS, until=MOMENTS)
def test_any_key_and_span_are_understood_or_refused(project: Project, key: str, since: str, until: str) -> None:
    span = [f"--event-key={key}", f"--from={since}", f"--to={until}"]
    assert answers(project, "items", "list", "order_outbox_item", *span)
    assert answers(project, "items", "delete", "order_outbox_item", *span, "--status=pending", "--dry-run")
