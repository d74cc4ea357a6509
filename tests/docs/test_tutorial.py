"""The tutorial, from its first file to the invoice."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import NullPool, create_engine, text

from tests.docs.walk import walk

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_the_tutorial_works_as_it_is_written(
    tmp_path: Path, postgres_url: str, redis_url: str, real_kafka: str
) -> None:
    servers = {"DATABASE_URL": postgres_url, "REDIS_URL": redis_url, "KAFKA": real_kafka}
    with walk(tmp_path, servers, without=frozenset({"servers"})) as reader:
        reader.through(PAGE.read_text(encoding="utf-8"))
    assert "pytest -q" in reader.commands
    database = create_engine(postgres_url, poolclass=NullPool)
    with database.connect() as connection:
        assert connection.execute(text("SELECT * FROM invoices")).all() == [(7, "ann", 99)]
