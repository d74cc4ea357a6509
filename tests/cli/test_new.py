"""``boxengine new``: what it writes imports, works, and overwrites nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.project import Project
from tests.eventually import eventually

WRITE = """
import boxengine, sqlalchemy as sa, os
from order_outbox_item import OrderOutboxItem
with sa.orm.Session(sa.create_engine(os.environ["DATABASE"])) as session, session.begin():
    boxengine.create_outbox_item(session, OrderOutboxItem, event_key=7, payload=b"hi there", event_name="placed")
"""


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    head, _, _ = project.config.read_text().partition("outbox_items:")
    project.config.write_text(head)
    return project


def test_the_model_and_the_transport_that_it_writes_carry_an_item(project: Project) -> None:
    box = project.run("new", "item", "Order")
    carrier = project.run("new", "transport", "send_order")
    head, _, _ = box.partition("    transports:")
    project.config.write_text(project.config.read_text() + head + carrier)
    assert "1 box, all in order" in project.run("config", "check")
    project.run("db", "create")
    environment = {"DATABASE": project.database, "PATH": ""}
    subprocess.run([sys.executable, "-c", WRITE], cwd=project.folder, check=True, env=environment, timeout=60)
    with project.worker() as worker:
        eventually(lambda: project.counts() == {2: 1})
        assert worker.stop() == 0
    assert any("hello placed 7: hi there" in line["message"] for line in worker.lines())


def test_the_snippet_of_an_item_is_a_valid_configuration_as_it_is(project: Project) -> None:
    for arguments in (["Order"], ["payment", "--inbox"], ["CardInboxItem", "--file", "transports_too.py"]):
        snippet = project.run("new", "item", *arguments)
        project.config.write_text(project.config.read_text().partition("outbox_items:")[0].partition("inbox_items:")[0])
        project.config.write_text(project.config.read_text() + snippet)
        assert "1 box, all in order" in project.run("config", "check")
    names = {path.name for path in project.folder.glob("*.py")}
    assert names == {"transports.py", "order_outbox_item.py", "payment_inbox_item.py", "transports_too.py"}


@pytest.mark.parametrize("kind", ["item", "transport"])
def test_nothing_is_overwritten(project: Project, kind: str) -> None:
    (project.folder / "mine.py").write_text("mine")
    project.run("new", kind, "Order", "--file", "mine.py", expect=1)
    assert project.errors == "boxengine: mine.py exists already; nothing was written\n"
    assert (project.folder / "mine.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["item", "7up"], "7up"),
        (["transport", "class"], "shop/items.py"),
        (["transport", "a.b"], "a.b"),
        (["item", "OrderOutboxItem", "--inbox"], "outbox"),
        (["item", "Order", "--file", "/tmp/order.py"], "shop/items.py"),
        (["item", "Order", "--file", "my-items.py"], "shop/items.py"),
        (["transport", "Order", "--file", "order.txt"], "shop/items.py"),
    ],
)
def test_a_name_or_a_file_that_python_could_not_import_exits_with_2(
    project: Project, arguments: list[str], hint: str
) -> None:
    project.call("new", *arguments, expect=2)
    assert hint in project.errors


@pytest.mark.parametrize("kind", ["item", "transport"])
def test_a_folder_that_is_not_there_is_made(project: Project, kind: str) -> None:
    assert "shop.orders.items.Order" in project.run("new", kind, "Order", "--file", "shop/orders/items.py")
    assert "class Order" in (project.folder / "shop/orders/items.py").read_text()


def test_a_folder_for_contracts_is_made_too(project: Project) -> None:
    (project.folder / "contracts.yml").write_text("contracts: [{id: 7, name: Export, fields: {n: int64}}]")
    project.run("new", "contract", "contracts.yml", "--file", "shop/contracts.py")
    assert "class Export" in (project.folder / "shop/contracts.py").read_text()


def test_a_folder_that_cannot_be_made_is_named(project: Project) -> None:
    (project.folder / "shop").write_text("a file")
    project.call("new", "item", "Order", "--file", "shop/items.py", expect=1)
    assert "shop/items.py: " in project.errors
