"""Five broken situations, each found and mended as somebody would who has the console and ``docs/on-call.md``, and no more."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.app.overview import problems
from boxengine.embedded import EmbeddedValkey
from boxengine.ports import OpenCircuit, WorkerInfo
from tests.cli.project import Project
from tests.eventually import eventually
from tests.web.browser.conftest import Running, Tab
from tests.web.console.conftest import CONFIGURATION, Console

pytestmark = pytest.mark.xdist_group("browser")
PAGE = (Path(__file__).parents[3] / "docs" / "on-call.md").read_text()
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def section(kind: str) -> str:
    """What the page says of a kind of problem."""
    found = re.search(rf"^## {re.escape(kind)}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/on-call.md has no section {kind}"
    return found[1]


def first_sentence(tab: Tab) -> str:
    tab.go("/")
    return str(tab.page.locator(".sentence, .fine").first.inner_text())


def worker_of(console: Console) -> WorkerInfo:
    names = tuple(console.boxes.resolved.pipelines)
    return WorkerInfo(id="w1", host="worker-1", pid=41, boxes=names, threads=4, started_at=NOW)


def announce(console: Console, *circuits: OpenCircuit) -> None:
    console.servers.workers.announce(replace(worker_of(console), circuits=circuits), ttl=timedelta(minutes=1))


def test_the_page_tells_of_every_kind_of_problem() -> None:
    source = Path(problems.__file__).read_text()
    kinds = set(re.findall(r'kind="([a-z-]+)"', source)) | {
        "database",
        "redis",
        "parked",
        "held-back",
        problems.NO_WORKER,
    }
    for kind in kinds:
        section(kind)
        assert f"(#{kind})" in PAGE, f"the table does not lead to {kind}"


def test_the_receiver_is_down(running: Running) -> None:
    console = running.console
    console.create(count=3)
    now = console.servers.clock.now()
    circuit = OpenCircuit(
        box="order_outbox_item",
        transport="http",
        since=now - timedelta(minutes=12),
        next_try=now,
        reason="connection refused",
    )
    announce(console, circuit)
    tab = running.tab().sign_in()
    sentence = first_sentence(tab)
    assert sentence.startswith("http of order_outbox_item has not reached its receiver for 12 min")
    assert sentence.endswith(": connection refused. 3 items wait.")
    tab.shoot("on-call-receiver")
    assert "There is nothing to press" in section("receiver")
    announce(console)  # the receiver is back
    eventually(lambda: "All is well" in first_sentence(tab))


def test_a_poison_item_holds_back_its_key(running: Running) -> None:
    console = running.console
    announce(console)
    poison, *followers = console.create(count=4, event_key="17")
    console.fail(poison, "http: Refused: 422 unknown currency")
    tab = running.tab().sign_in()
    assert (
        first_sentence(tab)
        == f"3 items of key 17 wait for item {poison}, which failed 4 times: Refused: 422 unknown currency"
    )
    tab.shoot("on-call-poison")
    page = tab.page
    page.get_by_role("link", name=f"Item {poison}").click()
    assert "3 items of its key wait for it." in page.locator(".why").inner_text()
    assert "**Discard** it" in section("parked")
    page.get_by_role("button", name="Discard").click()
    page.get_by_role("button", name="Discard 1 item").click()
    page.locator(".outcome", has_text="1 item discarded").wait_for()
    tab.go(f"/boxes/order-outbox-item/items/{followers[0]}")
    assert "Nothing holds it back" in page.locator(".why").inner_text()
    eventually(lambda: "All is well" in first_sentence(tab))


def test_no_worker_runs(running: Running, tmp_path: Path) -> None:
    console = running.console
    settings = console.boxes.resolved.settings
    console.create(count=5)
    tab = running.tab().sign_in()
    assert first_sentence(tab) == "No worker runs, and 5 items wait."
    tab.shoot("on-call-no-worker")
    assert "`boxengine start` must run" in section("no-worker")
    more = "  combined/outbox_item: {transports: {log: {}}}\n  secret_outbox_item: {transports: {log: {}}}\n"
    more += "inbox_items:\n  payment_inbox_item: {transports: {log: {}}}\n"
    folder = tmp_path / "worker"
    folder.mkdir()
    project = Project(folder, database=str(settings.database.url), redis=settings.redis.url, more=more)
    with project.worker():
        eventually(lambda: "All is well" in first_sentence(tab))
        eventually(lambda: set(console.statuses().values()) == {2})


def test_an_old_transaction_keeps_dead_rows(
    running: Running, serve: Callable[[Console], Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.checkup.FEW", 100)
    monkeypatch.setattr("boxengine.adapters.sql.checkup.LONG_TRANSACTION", timedelta(0))
    console, table = running.console, "order_outbox_items"
    announce(console)
    console.create(count=200)
    forgotten = sa.create_engine(console.engine.url, connect_args={"application_name": "monthly report"})
    separate = console.engine.execution_options(isolation_level="AUTOCOMMIT")
    with forgotten.connect() as connection, separate.connect() as own:
        connection.exec_driver_sql(f"SELECT count(*) FROM {table}")
        for status in (2, 3, 2):
            own.exec_driver_sql(f"UPDATE {table} SET status = {status}")
        own.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        own.exec_driver_sql("SELECT 1")
        tab = running.tab().sign_in().go("/")
        sentences = [str(each) for each in tab.page.locator(".sentence").all_inner_texts()]
        assert any("A transaction has been open" in each and "monthly report" in each for each in sentences)
        assert any("600 dead rows" in each for each in sentences)
        tab.shoot("on-call-vacuum")
        advice = [str(each) for each in tab.page.locator(".advice").all_inner_texts()]
        assert "run the statement that is given" in section("vacuum")
        (end,) = [text for text, sentence in zip(advice, sentences, strict=True) if "monthly report" in sentence]
        statement = re.search(r"SELECT pg_terminate_backend\(\d+\)", end)
        assert statement
        own.exec_driver_sql(statement[0])
        own.exec_driver_sql(f"VACUUM {table}")
        connection.invalidate()
    forgotten.dispose()
    later = serve(console.again()).tab().sign_in().go("/")  # the console looks the servers over every 20 seconds
    assert not any(
        "monthly report" in each or "dead rows" in each for each in later.page.locator(".sentence").all_inner_texts()
    )


def test_redis_is_lost(
    serve: Callable[[Console], Running],
    make_console: Callable[..., Console],
    postgres_url: str,
    own_redis: EmbeddedValkey,
) -> None:
    configuration = CONFIGURATION.replace("{redis}", own_redis.url())
    console = make_console(postgres_url, configuration)
    console.create(count=3)
    announce(console)
    running = serve(console)
    tab = running.tab().sign_in()
    eventually(lambda: "All is well" in first_sentence(tab))
    own_redis.kill()
    eventually(lambda: "Redis does not answer, so nothing is delivered" in first_sentence(tab))
    tab.shoot("on-call-redis")
    pending: Any = tab.page.locator("td[data-label=Pending]").first.inner_text()
    assert pending == "3", "the counts on the page are still right"
    assert "Bring Redis back, empty if need be" in section("redis")
    own_redis.start()
    announce(console)
    eventually(lambda: "All is well" in first_sentence(tab))
