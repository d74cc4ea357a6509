"""Jobs with idempotency keys, created many at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tests.integration.jobs.handlers import ReportJob
from tests.integration.jobs.shop import Shop

SERVERS = ["postgres_url", "mysql_url"]
MANY = 500


@pytest.fixture(params=SERVERS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path, request.getfixturevalue(request.param))) as shop:
        yield shop


def keyed(*keys: str) -> list[Any]:
    return [{"task": "export", "args": {"key": key}, "idempotency_key": key} for key in keys]


def create(shop: Shop, *keys: str) -> list[int]:
    with shop.engine.begin() as connection:
        return shop.boxes.create_jobs(connection, ReportJob, keyed(*keys))


def keys_of(shop: Shop, ids: list[int]) -> list[str]:
    return [shop.job(each)["idempotency_key"] for each in ids]


def test_five_hundred_are_asked_for_and_marked_once_not_one_by_one(shop: Shop) -> None:
    keys = [f"invoice-{each}" for each in range(MANY)]
    there = create(shop, *keys[:3])
    said: list[str] = []
    event.listen(shop.engine, "before_cursor_execute", lambda *given: said.append(given[2]))
    ids = create(shop, *keys)
    assert len([each for each in said if each.startswith("SELECT report_jobs")]) == 1
    assert len([each for each in said if each.startswith("SAVEPOINT")]) == 1
    assert ids[:3] == there
    assert keys_of(shop, ids[::100]) == keys[::100]
    assert len(set(ids)) == MANY


def test_what_somebody_else_creates_in_the_same_moment_is_one_job_and_the_others_are_new(shop: Shop) -> None:
    theirs: list[int] = []
    times = count()

    def create_first(*_: object) -> None:
        if next(times) == 0:
            theirs.append(shop.create("export", args={"key": "b"}, idempotency_key="b"))

    event.listen(shop.engine, "savepoint", create_first)
    ids = create(shop, "a", "b", "c")
    assert [ids[1]] == theirs
    assert keys_of(shop, ids) == ["a", "b", "c"]
    assert [shop.kinds(each) for each in ids] == [["queued"]] * 3


def test_keys_that_the_server_takes_for_the_same_are_one_job(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The collation of these columns on MySQL ignores spaces at the end."""
    with closing(Shop(tmp_path, request.getfixturevalue("mysql_url"))) as shop:
        first, second, other = create(shop, "a", "a ", "b")
        assert first == second
        assert other != first
        assert create(shop, "a ", "b ", "c")[:2] == [first, other]
