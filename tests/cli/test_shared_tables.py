"""Two boxes over one table under two spellings are refused at the start: each would deliver the other's items by chance."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.project import FILE, Project
from tests.eventually import eventually


def project_with(folder: Path, table: str, *, database: str, redis: str) -> Project:
    more = f"  other_outbox_item:\n    table: {table}\n    transports: {{{FILE}}}\n"
    return Project(folder, database=database, redis=redis, more=more)


@pytest.mark.parametrize("search_path", [None, "tenant", "empty,tenant"])
def test_on_postgresql_the_server_says_which_table_a_name_means(
    tmp_path: Path, postgres_url: str, redis_url: str, search_path: str | None
) -> None:
    url = postgres_url if search_path is None else f"{postgres_url}?options=-csearch_path%3D{search_path}"
    schema = "public" if search_path is None else "tenant"
    Project(tmp_path, database=postgres_url, redis=redis_url).execute("CREATE SCHEMA tenant", "CREATE SCHEMA empty")
    Project(tmp_path, database=url.replace("empty%2C", "").replace("empty,", ""), redis=redis_url).call("db", "create")
    project = project_with(tmp_path, f"{schema}.order_outbox_items", database=url, redis=redis_url)
    project.run("start", expect=2)
    assert project.errors == (
        f"boxengine: outbox.yml: outbox_items.other_outbox_item.table: works on table '{schema}.order_outbox_items', as does "
        "outbox_items.order_outbox_item; expected a table for each box\n"
    )
    shown = project.call("config", "check", "--deep", expect=1)
    assert "tables that no two boxes share: does not work: " in shown


def test_tables_of_the_same_name_in_two_schemas_are_two_tables(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = project_with(tmp_path, "tenant.order_outbox_items", database=postgres_url, redis=redis_url)
    project.execute("CREATE SCHEMA tenant")
    project.call("db", "create")
    project.fill(1)
    project.fill(1, box="other_outbox_item")
    with project.worker() as worker:
        for table in ("order_outbox_items", "tenant.order_outbox_items"):
            eventually(lambda: project.counts(table) == {2: 1}, what=table)  # noqa: B023 - waited for within the turn
        assert worker.stop() == 0


def test_a_table_that_somebody_has_locked_keeps_no_other_box_from_starting(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = project_with(tmp_path, "tenant.order_outbox_items", database=postgres_url, redis=redis_url)
    project.execute("CREATE SCHEMA tenant")
    project.call("db", "create")
    project.fill(1)
    with project.engine() as engine, engine.connect() as migration:
        migration.exec_driver_sql("LOCK TABLE tenant.order_outbox_items IN ACCESS EXCLUSIVE MODE")
        with project.worker() as worker:
            eventually(lambda: project.counts() == {2: 1})
            assert worker.stop() == 0


def test_a_table_in_capitals_is_its_own_on_postgresql(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    project = project_with(tmp_path, "Order_Outbox_Items", database=postgres_url, redis=redis_url)
    project.call("db", "create")
    assert "tables that no two boxes share: works" in project.call("config", "check", "--deep")


def test_without_an_answer_boxes_whose_tables_are_alike_do_not_start(tmp_path: Path, redis_url: str) -> None:
    closed = "postgresql+psycopg://x@127.0.0.1:1/x"
    project = project_with(tmp_path, "public.order_outbox_items", database=closed, redis=redis_url)
    project.run("start", expect=1)
    assert project.errors.startswith("boxengine: the database: ")
