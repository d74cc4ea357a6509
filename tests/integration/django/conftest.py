"""Django projects, each in its own folder, on each database that boxengine supports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.django.project import DjangoProject


@pytest.fixture(params=["postgres", "mariadb"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, on PostgreSQL and on MariaDB in turn."""
    name = "postgres_url" if request.param == "postgres" else "mysql_url"
    return str(request.getfixturevalue(name))


@pytest.fixture
def fresh(tmp_path: Path, postgres_url: str, redis_url: str) -> DjangoProject:
    """A project without tables, on PostgreSQL."""
    return DjangoProject(tmp_path, database=postgres_url, redis=redis_url)


@pytest.fixture
def project(fresh: DjangoProject) -> DjangoProject:
    """A project with tables, on PostgreSQL."""
    fresh.set_up()
    return fresh


@pytest.fixture
def blank(tmp_path: Path, database_url: str, redis_url: str) -> DjangoProject:
    """A project without tables, on each database."""
    return DjangoProject(tmp_path, database=database_url, redis=redis_url)


@pytest.fixture
def each_project(blank: DjangoProject) -> DjangoProject:
    """A project with tables, on each database."""
    blank.set_up()
    return blank


@pytest.fixture
def mariadb_project(tmp_path: Path, mysql_url: str, redis_url: str) -> DjangoProject:
    """A project with tables, on MariaDB."""
    project = DjangoProject(tmp_path, database=mysql_url, redis=redis_url)
    project.set_up()
    return project
