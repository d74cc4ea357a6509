"""Which driver the worker takes for a URL that was written for an application."""

from __future__ import annotations

import pytest

from boxengine.adapters.sql.connecting.engine import address_of


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql://u@h/n", "postgresql+psycopg://u@h/n"),
        ("postgresql+asyncpg://u:p@h:6432/n", "postgresql+psycopg://u:p@h:6432/n"),
        ("postgresql+psycopg_async://h/n?sslmode=require", "postgresql+psycopg://h/n?sslmode=require"),
        ("postgresql+asyncpg://h/n?ssl=verify-full", "postgresql+psycopg://h/n?sslmode=verify-full"),
        (
            "postgresql+asyncpg://h/n?prepared_statement_cache_size=0&timeout=3&command_timeout=9",
            "postgresql+psycopg://h/n?connect_timeout=3",
        ),
        ("mysql+asyncmy://h/n", "mysql+pymysql://h/n"),
        ("mariadb+aiomysql://h/n", "mariadb+pymysql://h/n"),
        ("mysql+mysqldb://h/n", "mysql+mysqldb://h/n"),
    ],
)
def test_the_worker_reaches_the_same_database_by_its_own_driver(url: str, address: str) -> None:
    assert address_of(url).render_as_string(hide_password=False) == address
