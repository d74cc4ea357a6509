"""The commands that come and go, as a user types them, over a real PostgreSQL and a real Valkey."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from sqlalchemy import Engine, inspect, make_url, text

from boxengine.cli.main import cli
from boxengine.cli.streaming import Stream
from boxengine.errors import BoxError
from tests.cli.project import Project
from tests.eventually import eventually
from tests.integration.locking import impatient, locked


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    return Project(tmp_path, database=postgres_url, redis=redis_url)


@pytest.fixture
def ready(project: Project) -> Project:
    project.call("db", "create")
    return project


def test_db_create_makes_the_table_and_a_second_time_changes_nothing(project: Project) -> None:
    assert "made" in project.call("db", "create")
    assert "is there" in project.call("db", "create")
    with project.engine() as engine:
        indexes = {index["name"] for index in inspect(engine).get_indexes("order_outbox_items")}
    assert "ix_order_outbox_items_pending" in indexes


def test_db_create_lets_others_write_while_it_adds_an_index_to_a_table_in_use(ready: Project) -> None:
    writing = "INSERT INTO order_outbox_items (uuid, event_key, bucket, payload) VALUES (gen_random_uuid(), 'k', 0, '')"
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
        "AND query LIKE 'CREATE INDEX%%'"
    )
    ready.execute("DROP INDEX ix_order_outbox_items_failed")
    with (
        ThreadPoolExecutor(1) as thread,
        ready.engine() as engine,
        engine.connect() as older,
        engine.connect() as writer,
    ):
        watcher = writer.execution_options(isolation_level="AUTOCOMMIT")
        older.exec_driver_sql(writing)
        made = thread.submit(ready.run, "db", "create")
        eventually(lambda: made.done() or watcher.exec_driver_sql(waiting).scalar())
        try:
            writer.exec_driver_sql("SET lock_timeout = '1s'")
            writer.exec_driver_sql(writing)
        finally:
            older.commit()
        assert "is there" in made.result()
        assert "ix_order_outbox_items_failed" in {
            each["name"] for each in inspect(engine).get_indexes("order_outbox_items")
        }


@pytest.mark.parametrize("server", ["postgres_url", "mysql_url"])
def test_the_printed_upgrade_records_the_number_of_buckets(
    tmp_path: Path, redis_url: str, server: str, request: pytest.FixtureRequest
) -> None:
    project = Project(tmp_path, database=request.getfixturevalue(server), redis=redis_url)
    project.call("db", "create")
    table = "order_outbox_items"
    nothing, own = (
        (f"COMMENT ON TABLE {table} IS {each}" if server == "postgres_url" else f"ALTER TABLE {table} COMMENT = {each}")
        for each in ("''", "'of the shop''s 100 %%'")
    )
    for before in (nothing, own):
        project.execute(before)
        printed = project.call("db", "upgrade", "--sql")
        project.execute(printed.partition("\n")[2].strip().removesuffix(";").replace("%", "%%"))
        assert project.call("db", "upgrade", "--sql") == ""
    with project.engine() as engine:
        assert inspect(engine).get_table_comment(table)["text"] == "of the shop's 100 %; boxengine bucket_size=16"


def test_db_check_fails_until_the_table_is_there(project: Project) -> None:
    assert "there is no table" in project.call("db", "check", expect=1)
    project.call("db", "create")
    assert "all in order" in project.call("db", "check")


def test_rows_in_buckets_that_nobody_serves_are_told_of_by_db_check_and_by_status(ready: Project) -> None:
    ready.fill(4)
    ready.execute("UPDATE order_outbox_items SET bucket = 99 WHERE id = 1")
    assert "1 pending row in buckets outside" in ready.call("db", "check", expect=1)
    ready.call("status")
    assert "1 pending row in buckets outside" in ready.errors


def test_a_locked_table_is_named_and_keeps_no_command_waiting_without_a_limit(
    tmp_path: Path, postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxengine.app.servers.database.PATIENCE", timedelta(seconds=0.2))
    other = "  other_outbox_item: {transports: {log: {}}, bucket_size: 3}"
    project = Project(tmp_path, database=impatient(postgres_url), redis=redis_url, more=other)
    project.call("db", "create")
    project.fill(1)
    project.execute("COMMENT ON TABLE other_outbox_items IS 'boxengine bucket_size=4'")
    with project.engine() as engine:
        with locked(engine, "order_outbox_items"):
            for command in (("db", "check"), ("doctor",)):
                told = project.call(*command, expect=1)
                assert "order_outbox_item: table order_outbox_items does not answer: " in told
                assert "other_outbox_item: " in told
            for command in (("db", "create"), ("db", "upgrade")):
                project.call(*command, expect=1)
                assert "table order_outbox_items does not answer: " in project.errors
                assert "End the transaction that has locked it" in project.errors
        with engine.begin() as connection:
            connection.execute(text("LOCK TABLE order_outbox_items IN SHARE MODE"))  # as CREATE INDEX does
            project.call("items", "discard", "order_outbox_item", "1", "--yes", expect=1)
            assert "somebody has locked" in project.errors


@pytest.mark.parametrize("command", ["create", "upgrade"])
def test_a_box_that_cannot_be_used_keeps_no_other_from_its_tables_and_each_is_named(
    tmp_path: Path, postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("boxengine.app.servers.database.PATIENCE", timedelta(seconds=0.2))
    other = "  other_outbox_item: {transports: {log: {}}, bucket_size: 3}\n"
    last = "  last_outbox_item: {transports: {log: {}}}\njob_items: {report_job: {tasks: {}}}"
    project = Project(tmp_path, database=impatient(postgres_url), redis=redis_url, more=other + last)
    project.call("db", "create")
    project.execute(
        "COMMENT ON TABLE other_outbox_items IS 'boxengine bucket_size=4'",
        "DROP TABLE last_outbox_items, report_jobs",
    )
    with project.engine() as engine, locked(engine, "order_outbox_items"):
        printed = project.call("db", command, expect=1)
    first, second = project.errors.splitlines()
    assert first.startswith("boxengine: box order_outbox_item: table order_outbox_items does not answer: ")
    assert second.startswith(
        "boxengine: box other_outbox_item: bucket_size is 3, but table 'other_outbox_items' was filled"
    )
    assert "nothing to do" not in printed
    assert "order_outbox_item: table" not in printed
    with project.engine() as engine:
        assert {"last_outbox_items", "report_jobs"} <= set(inspect(engine).get_table_names())
    project.call("db", command, "last_outbox_item")
    project.call("db", command, "other_outbox_item", expect=1)
    assert project.errors.splitlines() == [second]


def test_db_check_names_a_table_that_the_account_may_not_read_and_goes_on_with_the_others(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    other = "  other_outbox_item: {transports: {log: {}}}"
    owner = Project(tmp_path, database=postgres_url, redis=redis_url, more=other)
    owner.call("db", "create")
    owner.execute(
        "INSERT INTO other_outbox_items (uuid, event_key, bucket, payload) VALUES (gen_random_uuid(), 1, 99, '')"
    )
    owner.execute("CREATE ROLE auditor LOGIN", "GRANT SELECT ON other_outbox_items TO auditor")
    try:
        url = make_url(postgres_url).set(username="auditor").render_as_string(hide_password=False)
        account = Project(tmp_path, database=url, redis=redis_url, more=other)
        told = account.call("db", "check", expect=1)
    finally:
        owner.execute("DROP OWNED BY auditor", "DROP ROLE auditor")
    assert "error: order_outbox_item: the database: permission denied for table order_outbox_items" in told
    assert "error: other_outbox_item: " in told
    assert "1 pending row in buckets outside" in told


def test_db_upgrade_prints_what_it_can_where_one_box_cannot_be_used(
    tmp_path: Path, postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxengine.app.servers.database.PATIENCE", timedelta(seconds=0.2))
    other = "  other_outbox_item: {transports: {log: {}}}"
    project = Project(tmp_path, database=impatient(postgres_url), redis=redis_url, more=other)
    project.call("db", "create", "order_outbox_item")
    with project.engine() as engine, locked(engine, "order_outbox_items"):
        assert "CREATE TABLE other_outbox_items" in project.call("db", "upgrade", "--sql", expect=1)
    assert "table order_outbox_items does not answer: " in project.errors


def test_a_locked_table_is_named_on_mariadb_too(
    tmp_path: Path, mysql_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.connecting.engine.ROW_LOCK_WAIT", 1)
    monkeypatch.setattr("boxengine.app.servers.database.PATIENCE", timedelta(seconds=1))
    jobs = "job_items: {report_job: {tasks: {}}, other_job: {tasks: {}}}"
    project = Project(tmp_path, database=impatient(mysql_url), redis=redis_url, more=jobs)
    project.call("db", "create")
    with project.engine() as engine, locked(engine, "order_outbox_items"):
        assert "order_outbox_item: table order_outbox_items does not answer: " in project.call("db", "check", expect=1)
        told = project.call("doctor", expect=1)
        assert "order_outbox_item: table order_outbox_items does not answer: " in told
        assert "lacks privileges" not in told
    project.execute("ALTER TABLE order_outbox_items DROP INDEX ix_order_outbox_items_status")
    with project.engine() as engine, locked(engine, "order_outbox_items"):
        for command in (("db", "create"), ("db", "upgrade")):
            project.call(*command, expect=1)
            assert "table order_outbox_items does not answer: " in project.errors
    with project.engine() as engine, locked(engine, "report_jobs"):
        told = project.call("doctor", expect=1)
        assert "report_job: table report_jobs does not answer: " in told
        assert "other_job: nothing is left lying" in told


def test_db_check_warns_of_what_slows_deliveries_down(project: Project) -> None:
    project.call("db", "create")
    project.execute("ALTER TABLE order_outbox_items SET (autovacuum_enabled = off)")
    told = "autovacuum is off for order_outbox_items"
    assert f"warning: order_outbox_item: {told}" in project.call("db", "check")
    (warning,) = json.loads(project.call("db", "check", "--json"))
    assert (warning["box"], warning["severity"]) == ("order_outbox_item", "warning")
    assert warning["message"].startswith(told)
    assert "RESET (autovacuum_enabled)" in warning["message"]


def test_db_ddl_prints_sql_that_makes_a_table_which_passes_the_check(project: Project) -> None:
    script = project.call("db", "ddl")
    project.execute(*(statement for statement in script.split(";") if statement.strip()))
    assert "all in order" in project.call("db", "check")


def test_db_upgrade_completes_a_table_of_an_earlier_version_and_then_has_nothing_to_do(ready: Project) -> None:
    ready.execute(
        "DROP INDEX ix_order_outbox_items_failed",
        "ALTER TABLE order_outbox_items DROP COLUMN available_at, RESET (autovacuum_vacuum_threshold)",
    )
    printed = ready.call("db", "upgrade", "--sql")
    assert "CREATE INDEX CONCURRENTLY ix_order_outbox_items_failed" in printed
    assert ready.call("db", "upgrade", "--sql") == printed, "printing changes nothing"
    done = ready.call("db", "upgrade")
    assert "1/4 order_outbox_items: add the column available_at" in done
    assert "1 box, nothing to do" in ready.call("db", "upgrade")
    assert "all in order" in ready.call("db", "check")


def test_asking_for_latest_available_takes_another_db_create_and_until_then_is_told_of(ready: Project) -> None:
    assert "(event_key, id)" not in ready.call("db", "ddl")
    strategies = "    max_retries: 3\n    retry_strategies: [exponential_backoff, latest_available]\n    transports:"
    ready.config.write_text(ready.config.read_text().replace("    transports:", strategies))
    told = "table order_outbox_items has no index over event_key and id"
    assert f"warning: order_outbox_item: {told}" in ready.call("db", "check")
    with ready.worker() as worker:
        eventually(lambda: any(told in line.get("message", "") for line in worker.lines()))
        assert worker.stop() == 0
    assert "(event_key, id)" in ready.call("db", "ddl")
    ready.call("db", "create")
    assert "all in order" in ready.call("db", "check")
    with ready.engine() as engine:
        indexes = {index["name"] for index in inspect(engine).get_indexes("order_outbox_items")}
    assert "ix_order_outbox_items_key" in indexes


def test_create_writes_one_item_that_status_counts(ready: Project) -> None:
    ready.call("create", "order_outbox_item", "--event-key", "7", "--payload", "hello", "--event-name", "order_placed")
    row = json.loads(ready.call("status", "--json"))[0]
    assert (row["box"], row["pending"], row["delivered"], row["queue"]) == ("order_outbox_item", 1, 0, 0)


def test_create_goes_through_the_middlewares_of_one_item_and_points_out_an_empty_payload(ready: Project) -> None:
    (ready.folder / "stamping.py").write_text(
        "class Stamp:\n"
        "    def __call__(self, model, attributes, call_next):\n"
        "        attributes['event_name'] = 'stamped'\n"
        "        call_next()\n"
    )
    ready.config.write_text(ready.config.read_text() + "\nmiddlewares: {create_item: [stamping.Stamp]}\n")
    ready.run("create", "order_outbox_item", "--event-key", "7")
    assert "payload is empty" in ready.errors
    assert json.loads(ready.run("items", "list", "order_outbox_item", "--json"))[0]["event_name"] == "stamped"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--event-key", "7", "--delay", "60"], "boxengine: --delay is for long jobs, and order_outbox_item has items"),
        (["--event-key", "7", "--task", "export"], "boxengine: --task is for long jobs"),
        (["--event-key", "7", "--jsonl", "-"], "boxengine: --event-key cannot be combined with --jsonl"),
        (
            ["--event-key", "7", "--payload", "x", "--payload-file", "y"],
            "boxengine: --payload-file cannot be combined with --payload",
        ),
    ],
)
def test_create_refuses_options_that_it_would_ignore(ready: Project, options: list[str], reason: str) -> None:
    ready.call("create", "order_outbox_item", *options, expect=2)
    said = " ".join(ready.errors.replace("│", " ").split())
    assert reason in said
    assert ready.counts() == {}


def test_create_streams_json_lines_from_a_file_and_from_standard_input(ready: Project) -> None:
    lines = "\n".join(json.dumps({"event_key": n, "payload": {"n": n}}) for n in range(2500))
    (ready.folder / "items.jsonl").write_text(lines)
    assert "2,500 items written" in ready.run("create", "order_outbox_item", "--jsonl", "items.jsonl")
    assert "2,500 items written" in ready.run("create", "order_outbox_item", "--jsonl", "-", stdin=lines.encode())
    assert ready.counts() == {0: 5000}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{not json", "not JSON"),
        ('{"payload": "x"}', "event_key is missing"),
        ('{"event_key": 1}', "payload is missing"),
        ('{"event_key": 1, "payload": "x", "colour": "red"}', "unknown attribute colour"),
        ('{"event_key": 1, "payload_base64": "###"}', "payload_base64"),
        ('{"event_key": 1, "payload": "x", "available_at": "2026-01-31T12:00"}', "expected a moment with a zone"),
    ],
)
def test_a_bad_line_is_reported_with_its_number_and_its_batch_is_not_half_written(
    ready: Project, bad: str, reason: str
) -> None:
    good = [json.dumps({"event_key": n, "payload": "x"}) for n in range(1500)]
    lines = [*good[:1200], bad, *good[1200:]]
    ready.run("create", "order_outbox_item", "--jsonl", "-", stdin="\n".join(lines).encode(), expect=1)
    assert reason in ready.errors
    assert "1,000 items written, go on from line 1001" in ready.errors
    assert ready.counts() == {0: 1000}


def test_a_remark_of_any_length_is_one_line_in_a_file(ready: Project, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps({"event_key": "1", "payload": "x", "available_at": "soon " * 100}))
    ready.call("create", "order_outbox_item", "--jsonl", str(lines), "--skip-bad")
    assert len(ready.errors.splitlines()) == 1
    assert "soon soon" in ready.errors


def test_skip_bad_leaves_bad_lines_out_and_goes_on(ready: Project) -> None:
    lines = '{"event_key": 1, "payload": "a"}\n{oops\n{"event_key": 2, "payload": "b"}\n'
    assert "1 bad line left out" in ready.run(
        "create", "order_outbox_item", "--jsonl", "-", "--skip-bad", stdin=lines.encode()
    )
    assert "line 2" in ready.errors
    assert ready.counts() == {0: 2}


def test_names_may_be_as_long_as_the_table_takes_them(ready: Project) -> None:
    ready.execute("ALTER TABLE order_outbox_items ALTER COLUMN event_key TYPE varchar(300)")
    lines = "\n".join(json.dumps({"event_key": "k" * length, "payload": "x"}) for length in (300, 301))
    said = ready.run("create", "order_outbox_item", "--jsonl", "-", "--skip-bad", stdin=lines.encode())
    assert said == "1 item written to order_outbox_item, 1 bad line left out\n"
    assert "line 2" in ready.errors
    assert "301 characters" in ready.errors


@contextmanager
def creating(project: Project, lines: int) -> Iterator[subprocess.Popen[bytes]]:
    """``boxengine create`` that has got so many lines, and may get more."""
    command = [sys.executable, "-m", "boxengine", "create", "order_outbox_item", "--jsonl", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=project.folder, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(b'{"event_key": 1, "payload": "x"}\n' * lines)
            process.stdin.flush()
            yield process
        finally:
            process.kill()


STOPPED = b"boxengine: stopped; 1,000 items written, go on from line 1001\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_create_says_where_to_go_on_when_it_is_stopped(ready: Project, number: signal.Signals) -> None:
    with creating(ready, 1500) as process:
        eventually(lambda: ready.counts() == {0: 1000})
        process.send_signal(number)
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(60)) == (STOPPED, 1)
    assert ready.counts() == {0: 1000}


def test_create_that_is_stopped_while_it_writes_finishes_its_batch_so_that_it_knows_what_is_written(
    ready: Project,
) -> None:
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )

    def waits(engine: Engine) -> bool:
        with engine.connect() as looking:
            return bool(looking.scalar(waiting) == 1)

    with ready.engine() as engine, engine.connect() as other, creating(ready, 1500) as process:
        other.exec_driver_sql("LOCK TABLE order_outbox_items")
        eventually(lambda: waits(engine))
        process.send_signal(signal.SIGINT)
        other.commit()
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(60)) == (STOPPED, 1)
    assert ready.counts() == {0: 1000}


def test_a_stop_that_comes_while_create_looks_at_a_line_does_not_wait_for_the_next_lines() -> None:
    """Those may be long in coming: somebody types them, or ``tail -f`` does."""
    written = list[Any]()

    def parsed(line: bytes) -> dict[str, Any]:
        stream.stop()
        return {"payload": line}

    waiting = [b"first\n"]
    writer: Any = SimpleNamespace(write=written.append)
    stream = Stream(writer, skip_bad=False, parsed=parsed)
    # To wait for a second line would be an error.
    source: Any = SimpleNamespace(readline=lambda _limit: waiting.pop())
    with pytest.raises(BoxError, match=r"^stopped; 0 items written, go on from line 1$"):
        stream.run(source, None)
    assert written == []


def test_pause_and_resume_show_in_status(ready: Project) -> None:
    ready.call("pause", "order_outbox_item")
    assert json.loads(ready.call("status", "--json"))[0]["paused"] is True
    ready.call("resume", "order_outbox_item")
    assert json.loads(ready.call("status", "--json"))[0]["paused"] is False


def test_a_pause_that_is_forgotten_leaves_the_box_to_polling_auto_disabled(ready: Project) -> None:
    for stopped in (True, False):
        ready.config.write_text(ready.config.read_text() + f"\npolling_auto_disabled: {str(stopped).lower()}\n")
        ready.call("resume" if stopped else "pause", "order_outbox_item")
        assert json.loads(ready.call("status", "--json"))[0]["paused"] is not stopped
        assert "polling_auto_disabled" in ready.call("pause", "order_outbox_item", "--forget")
        assert json.loads(ready.call("status", "--json"))[0]["paused"] is stopped
        ready.config.write_text(ready.config.read_text().replace("polling_auto_disabled", "# polling_auto_disabled"))


def test_cleanup_deletes_what_is_older_than_its_retention_and_nothing_else(ready: Project) -> None:
    ready.fill(20)
    ready.execute(
        "UPDATE order_outbox_items SET status = 2, created_at = now() - interval '8 days' WHERE id <= 5",
        "UPDATE order_outbox_items SET status = 2 WHERE id BETWEEN 6 AND 10",
        "UPDATE order_outbox_items SET created_at = now() - interval '8 days' WHERE id > 15",
    )
    assert "5 items deleted" in ready.call("cleanup")
    assert ready.counts() == {0: 10, 2: 5}


@pytest.mark.parametrize(
    "command", [["start", "-b", "nope"], ["status", "nope"], ["create", "nope"], ["pause", "nope"]]
)
def test_an_unknown_box_exits_with_2_and_names_the_known_ones(project: Project, command: list[str]) -> None:
    project.call(*command, expect=2)
    assert project.errors == "boxengine: unknown box 'nope'; known boxes: order_outbox_item\n"


def test_a_worker_without_any_box_does_not_start(project: Project) -> None:
    project.config.write_text("outbox_items: {}\n")
    project.call("start", expect=2)
    assert "there is no box to work on; add one under outbox_items" in project.errors


def test_a_check_without_a_database_notes_that_a_worker_would_not_start(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    project.config.write_text("outbox_items: {order_outbox_item: {transports: {log: }}}\n")
    assert project.call("config", "check") == (
        "note: database.url is missing, and DATABASE_URL is not set: a worker would not start\n1 box, all in order\n"
    )


def test_a_database_that_refuses_connections_is_told_with_the_key_to_check(project: Project) -> None:
    project.config.write_text(
        "database: {url: 'postgresql+psycopg://me@127.0.0.1:1/shop'}\noutbox_items: {order_outbox_item: {}}\n"
    )
    project.call("db", "create", expect=1)
    assert "Connection refused; check database.url, and that the server runs" in project.errors


def test_a_broken_configuration_exits_with_2_and_every_problem(project: Project) -> None:
    project.config.write_text(project.config.read_text() + "\npoller: {threads_count: many}\nbuckt_size: 3\n")
    project.call("start", expect=2)
    assert "poller.threads_count" in project.errors
    assert "buckt_size" in project.errors
    assert "Traceback" not in project.errors


def test_config_show_names_the_source_of_each_value_and_masks_secrets(project: Project) -> None:
    rows = {row["key"]: row for row in json.loads(project.run("config", "show", "--json"))}
    assert rows["database.url"]["source"] == "outbox.yml"
    assert rows["poller.rate_limit"]["source"] == "default"
    project.config.write_text(project.config.read_text().replace("redis://", "redis://user:hunter2@"))
    assert "hunter2" not in project.run("config", "show")


def test_config_show_shows_brackets_and_colons_as_they_are(project: Project) -> None:
    source = '{kafka: {topics: ["^orders-[a-z]+$"], group: g, bootstrap_servers: x}}'
    box = f'inbox_items: {{order_inbox_item: {{source: {source}, transports: {{log: {{}}}}, owner: "shop:a:orders"}}}}'
    project.config.write_text(f"{project.config.read_text()}\n{box}\n")
    shown = project.call("config", "show")
    assert "^orders-[a-z]+$" in shown
    assert "shop:a:orders" in shown


def test_two_asyncapi_documents_are_compared(project: Project, tmp_path: Path) -> None:
    printed = project.call("config", "asyncapi", "--title", "shop")
    assert json.loads(printed)["info"] == {"title": "shop", "version": "1.0.0"}
    old = tmp_path / "asyncapi.json"
    old.write_text(printed)
    assert project.call("config", "asyncapi", "--compare", str(old)) == "nothing breaks\n"
    lost = json.loads(printed) | {
        "operations": {"send.orders": {"action": "send", "channel": {"$ref": "#/channels/x"}}}
    }
    old.write_text(json.dumps(lost))
    assert "send.orders: is gone" in project.call("config", "asyncapi", "--compare", str(old), expect=1)
    old.write_text("openapi: 3.1.0")
    project.call("config", "asyncapi", "--compare", str(old), expect=1)
    assert "not an AsyncAPI 3 document" in project.errors
    project.call("config", "asyncapi", "--compare", str(tmp_path / "none"), expect=1)
    assert project.errors == f"boxengine: --compare {tmp_path / 'none'}: cannot be read: No such file or directory\n"


def test_config_check_and_schema(project: Project) -> None:
    assert "all in order" in project.call("config", "check")
    assert json.loads(project.call("config", "schema"))["title"] == "boxengine configuration"


def test_init_makes_a_configuration_that_is_valid_and_overwrites_nothing(tmp_path: Path, postgres_url: str) -> None:
    project = Project(tmp_path, database=postgres_url, redis="redis://127.0.0.1:6379/0")
    (tmp_path / "outbox.yml").unlink()
    (tmp_path / "transports.py").unlink()
    project.run("init")
    project.run("config", "check")
    project.run("init", expect=1)
    assert "already there: outbox.yml" in project.errors


@pytest.mark.parametrize(
    "command",
    ["start", "create", "status", "pause", "resume", "cleanup", "demo", "init", "db create", "db check", "db ddl",
     "config check", "config show", "config schema"],
)  # fmt: skip
def test_every_command_explains_itself(project: Project, command: str) -> None:
    assert "Usage" in project.call(*command.split(), "--help")


@pytest.mark.parametrize("command", ["status", "db convert"])
def test_a_paragraph_of_help_fills_the_lines_of_the_terminal(command: str) -> None:
    found: Any = typer.main.get_command(cli)
    for name in command.split():
        found = found.commands[name]
    paragraphs = found.help.split("\n\n")
    assert len(paragraphs) > 1
    assert not [each for each in paragraphs if "\n" in each]
