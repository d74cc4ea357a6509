"""A changed ``bucket_size``, as a user meets it: refused, and changed by a command once nothing is pending."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.project import Project
from tests.eventually import eventually

TABLE = "order_outbox_items"
REFUSED = (
    "bucket_size is 32, but table 'order_outbox_items' was filled with 16: set it back to 16, or change it once the box is "
    "empty, with: boxengine db rebucket order_outbox_item"
)


@pytest.fixture(params=["postgres_url", "mysql_url"], ids=["postgresql", "mariadb"])
def project(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Project:
    return Project(tmp_path, database=request.getfixturevalue(request.param), redis=redis_url)


def set_size(project: Project, size: int) -> None:
    before = project.config.read_text().partition("bucket_size: ")[0].rstrip("\n")
    project.config.write_text(f"{before}\nbucket_size: {size}\n")


def test_a_changed_size_is_refused_until_the_box_is_empty_and_the_command_put_it_in_force(project: Project) -> None:
    project.call("db", "create")
    project.fill(3)
    set_size(project, 32)
    project.call("start", expect=2)
    assert "outbox.yml: outbox_items.order_outbox_item.bucket_size: " in project.errors
    assert REFUSED in project.errors
    assert REFUSED in project.call("config", "check", "--deep", expect=1)
    assert REFUSED in project.call("db", "check", expect=1)
    found = {each["text"]: each["advice"] for each in json.loads(project.call("doctor", "--json", expect=1))}
    assert found[f"order_outbox_item: {REFUSED}"] == "Until then, workers deliver nothing of this box."
    project.call("db", "create", expect=1)
    assert REFUSED in project.errors
    assert "order_outbox_item" in project.call("status")
    project.call("db", "rebucket", "order_outbox_item", expect=1)
    assert "the buckets of the old size hold 3 pending items" in project.errors

    set_size(project, 16)
    with project.worker() as worker:
        eventually(lambda: project.counts(TABLE) == {2: 3}, what="deliveries")
        assert worker.stop() == 0
    set_size(project, 32)
    assert "can become 32; it was 16" in project.call("db", "rebucket", "order_outbox_item", "--dry-run")
    assert "is now 32; it was 16" in project.call("db", "rebucket", "order_outbox_item")
    assert "is 32 already" in project.call("db", "rebucket", "order_outbox_item")
    assert "all in order" in project.call("db", "check")


def test_only_the_boxes_that_a_worker_is_to_work_on_are_looked_at(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    more = "  other_outbox_item:\n    bucket_size: 32\n    transports: {log: {}}\n"
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more=more)
    project.call("db", "create")
    project.execute("COMMENT ON TABLE other_outbox_items IS 'boxengine bucket_size=8'")
    project.fill(1)
    with project.worker("-b", "order_outbox_item") as worker:
        eventually(lambda: project.counts(TABLE) == {2: 1}, what="deliveries")
        assert worker.stop() == 0


def test_an_upgrade_records_the_size_of_tables_that_know_none(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.call("db", "create")
    project.execute(f"COMMENT ON TABLE {TABLE} IS NULL")
    assert "bucket_size 16 recorded" in project.call("db", "upgrade")
    assert "nothing to do" in project.call("db", "upgrade")


def test_a_box_that_was_made_with_a_log_is_refused_with_a_table(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    """Its workers would find nothing, and nobody would hear of it."""
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more="    storage: log")
    project.call("db", "create")
    project.execute(f"COMMENT ON TABLE {TABLE} IS 'boxengine bucket_size=16'")
    assert "bucket_size 16 recorded" in project.call("db", "upgrade")
    project.call("db", "check")
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    assert "its items are in a log: set storage: log" in project.call("db", "check", expect=1)
    project.call("start", expect=2)
    assert "its items are in a log: set storage: log" in project.errors


def test_an_upgrade_records_the_sizes_of_a_log_and_its_subscriptions(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    more = "  sale_outbox_item:\n    storage: log\n    subscriptions: {billing: {transports: {log: {}}}}"
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more=more)
    project.call("db", "create")
    for table in ("sale_outbox_items", "sale_outbox_items_billing"):
        project.execute(f"COMMENT ON TABLE {table} IS NULL")
    said = project.call("db", "upgrade")
    assert "sale_outbox_item: bucket_size 16 recorded" in said
    assert "sale_outbox_item.billing: bucket_size 16 recorded" in said
