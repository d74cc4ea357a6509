"""Django projects in a folder of their own, on each database that boxengine works with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.django.project import DjangoProject


@pytest.fixture(params=["postgres", "mariadb"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database, PostgreSQL's and MariaDB's."""
    name = "postgres_url" if request.param == "postgres" else "mysql_url"
    return str(request.getfixturevalue(name))


@pytest.fixture
def fresh(tmp_path: Path, postgres_url: str, redis_url: str) -> DjangoProject:
    """Without tables, on PostgreSQL."""
    return DjangoProject(tmp_path, database=postgres_url, redis=redis_url)


@pytest.fixture
def project(fresh: DjangoProject) -> DjangoProject:
    """With tables, on PostgreSQL."""
    fresh.set_up()
    return fresh


@pytest.fixture
def blank(tmp_path: Path, database_url: str, redis_url: str) -> DjangoProject:
    """Without tables, on each database."""
    return DjangoProject(tmp_path, database=database_url, redis=redis_url)


@pytest.fixture
def each_project(blank: DjangoProject) -> DjangoProject:
    """With tables, on each database."""
    blank.set_up()
    return blank
