"""``boxengine config check --deep``: each thing is tried, for a bounded time, and said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from boxengine.embedded import EmbeddedValkey
from tests.cli.project import Project

MORE = """
  payment_outbox_item:
    transports: {tried.Sick: {}, tried.Slow: {}, tried.Good: {}}
"""
TRIED = """
import threading
from pathlib import Path

class Sick:
    def __init__(self):
        {}["nope"]
    def __call__(self, item, payload): ...

class Slow(Sick):
    def __init__(self):
        threading.Event().wait(60)

class Good(Sick):
    def __init__(self): ...
    def close(self):
        Path("closed").touch()
"""


def said(shown: str) -> dict[str, str]:
    """What came of each thing, without the time."""
    lines = (re.sub(r" \(\d+\.\d\d s\)$", "", line).partition(": ") for line in shown.splitlines()[1:])
    return {what: outcome for what, _, outcome in lines}


@pytest.mark.parametrize("servers", ["bootstrap_servers: SERVERS", "config: {bootstrap.servers: SERVERS}"])
def test_all_that_works_is_said(
    tmp_path: Path, postgres_url: str, redis_url: str, kafka_bootstrap: str, kafka_topic: str, servers: str
) -> None:
    kafka = f"kafka: {{topic: {kafka_topic}, {servers.replace('SERVERS', repr(kafka_bootstrap))}}}"
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports=kafka)
    project.call("db", "create")
    assert said(project.call("config", "check", "--deep")) == {
        "database": "works",
        "table order_outbox_items of order_outbox_item": "works",
        "tables that no two boxes share": "works",
        "Redis": "works",
        f"Kafka at {kafka_bootstrap}": "works",
        "transport kafka of order_outbox_item": "works",
    }


def test_what_does_not_work_is_said_with_its_reason_and_hides_nothing_else(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "tried.py").write_text(TRIED)
    kafka = "kafka: {topic: t, bootstrap_servers: '127.0.0.1:1'}"
    project = Project(tmp_path, database=postgres_url, redis="redis://127.0.0.1:1/0", transports=kafka, more=MORE)
    outcomes = said(project.run("config", "check", "--deep", "--timeout", "2", expect=1))
    tables = {
        f"table {name}_outbox_items of {name}_outbox_item": f"does not work: box {name}_outbox_item: there is no table "
        f"'{name}_outbox_items'; make it with: boxengine db create"
        for name in ("order", "payment")
    }
    assert outcomes.pop("Redis").startswith("does not work: Redis: Error 111 connecting to 127.0.0.1:1.")
    assert outcomes.pop("Kafka at 127.0.0.1:1").startswith("does not work: Kafka: ")
    assert outcomes == tables | {
        "database": "works",
        "tables that no two boxes share": "works",
        "transport kafka of order_outbox_item": "works",
        "transport tried.Sick of payment_outbox_item": "does not work: its constructor raised KeyError: 'nope' "
        f"({tmp_path}/tried.py:7)",
        "transport tried.Slow of payment_outbox_item": "does not work: no answer within 2 s",
        "transport tried.Good of payment_outbox_item": "works",
    }
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize(
    "url", ["postgresql+psycopg://x:sesame@127.0.0.1:1/x", "mysql+pymysql://x:sesame@127.0.0.1:1/x"]
)
def test_a_database_that_does_not_answer_is_said_once_without_its_password(
    tmp_path: Path, redis_url: str, url: str
) -> None:
    project = Project(tmp_path, database=url, redis=redis_url)
    shown = project.call("config", "check", "--deep", expect=1)
    assert "sesame" not in shown
    assert said(shown)["database"].startswith("does not work: the database: ")
    assert [what for what in said(shown) if what.startswith("table")] == []


def test_a_database_and_a_redis_that_take_no_writes_do_not_work(tmp_path: Path, postgres_url: str) -> None:
    """A worker would deliver nothing there."""
    read_only = postgres_url + "?options=-c%20default_transaction_read_only%3Don"
    with EmbeddedValkey(tmp_path / "replica", durable=False, settings={"replicaof": "127.0.0.1 1"}) as replica:
        project = Project(tmp_path, database=read_only, redis=replica.url())
        outcomes = said(project.call("config", "check", "--deep", expect=1))
    assert "session is read-only; it is a standby, or was made read-only" in outcomes["database"]
    assert "the server is a replica and takes no writes" in outcomes["Redis"]


def test_without_deep_nothing_is_tried(tmp_path: Path) -> None:
    project = Project(tmp_path, database="postgresql://127.0.0.1:1/x", redis="redis://127.0.0.1:1/0")
    assert project.call("config", "check") == "1 box, all in order\n"


def test_long_jobs_are_tried_by_their_table_and_without_redis(tmp_path: Path, postgres_url: str) -> None:
    project = Project(tmp_path, database=postgres_url, redis="redis://127.0.0.1:1/0")
    project.config.write_text(
        f"database: {{url: '{postgres_url}'}}\nredis: {{url: 'redis://127.0.0.1:1/0'}}\n"
        "job_items: {report_job: {tasks: {export: json.dumps}}}\n"
    )
    deep = ("config", "check", "--deep")
    shown = project.call(*deep, expect=1)
    assert shown.startswith("1 box, the configuration is valid\n")
    missing = "does not work: box report_job: table report_jobs does not exist: db create"
    assert said(shown)["table report_jobs of report_job"] == missing
    project.call("db", "create")
    works = said(project.call(*deep))
    assert works.pop("table report_jobs of report_job") == "works"
    assert "Redis" not in works
