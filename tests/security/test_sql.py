"""SQL is made of quoted identifiers and bound values: whatever tables are called and whatever values hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import boxengine
from boxengine.adapters.sql.dialects.postgresql import _listed
from boxengine.adapters.sql.making import checks, schema
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.domain.item import Status
from boxengine.engine.item_actions import Action, ItemActions
from boxengine.ports import ItemFilter
from tests.integration.engine.receivers import FailsFirst, Receiver
from tests.integration.engine.rig import BOX, Rig

HOSTILE = [
    'say "hi"; DROP TABLE students; --',
    "o'clock' OR '1'='1",
    "back`tick",
    "per%cent %s %(a)s",
    "col:on :bucket :after :share :id",
    "back\\slash",
    "two words",
    "select",
    "Ünïcödé",
    "{brace} ${dollar}",
    "MixedCase",
    "x" * 60,
]
NAMES = ["order", "select"]


def configured(text: str) -> str:
    """As a configuration writes it."""
    return text.replace("${", "$${")


@pytest.fixture(params=["postgres_url", "mysql_url"])
def servers_of(request: pytest.FixtureRequest, redis_url: str) -> tuple[str, str]:
    return request.getfixturevalue(request.param), redis_url


def journey(rig: Rig, box: str = BOX) -> None:
    """Create, deliver with a failure, look, retry, discard, delete, clean up: every statement there is."""
    assert checks.check(rig.engine, [rig.box(box)]) == []
    rig.create_tables()
    receiver = Receiver(FailsFirst(2, guilty=lambda item: item.event_key == "poison"))
    rig.carry(receiver, box=box)
    ids = rig.create(*range(60), "poison", box=box)
    known = rig.create("known", box=box, dedup_key="k")
    assert rig.create("known", box=box, dedup_key="k") == known
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.delivered) == len(ids) + 1)
    assert watcher.outages == []
    assert receiver.ids.count(ids[-1]) == 3
    connected = connect_servers(rig.boxes.resolved.settings)
    actions, which = ItemActions(connected.items, connected.memory), rig.box(box)
    found = connected.items.get(which, ids[0])
    assert found is not None
    assert found.status == Status.DELIVERED
    assert connected.items.count(which, ItemFilter(event_key="poison")) == 1
    (waiting,) = rig.create("waiting", box=box)
    assert actions.run(which, Action.DISCARD, ItemFilter(ids=(waiting,))).changed == 1
    assert actions.run(which, Action.RETRY, ItemFilter(ids=(waiting,))).changed == 1
    assert actions.run(which, Action.DISCARD, ItemFilter(ids=(waiting,))).changed == 1
    assert actions.run(which, Action.DELETE, ItemFilter(ids=(waiting,))).changed == 1
    now = datetime.now(UTC)
    span = {"created_from": now - timedelta(days=1), "created_before": now + timedelta(days=1)}
    assert connected.store.oldest_finished(which, [Status.DELIVERED]) is not None
    assert connected.store.oldest_pending(which) is None
    assert connected.store.delete_finished(which, [Status.DELIVERED], limit=100, **span) == len(ids) + 1
    assert connected.store.counts(which) == {}
    connected.close()


# ── identifiers ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("table", "order"), list(zip(HOSTILE, cycle([False, True, "key"]), strict=False)), ids=lambda each: str(each)[:12]
)
def test_a_table_may_be_called_anything(
    tmp_path: Path, servers_of: tuple[str, str], table: str, order: bool | str
) -> None:
    box = {
        "table": configured(table),
        "strict_order": order,
        "minimal_retry_interval": 0.05,
        "maximal_retry_interval": 0.1,
    }
    box |= {} if order else {"max_retries": 5}
    with Rig(tmp_path, database=servers_of[0], redis=servers_of[1], box=box) as rig:
        rig.create_tables()
        journey(rig)
        assert sa.inspect(rig.engine).get_table_names() == [table]


@pytest.mark.parametrize("name", NAMES)
def test_a_box_may_bear_a_word_of_sql(tmp_path: Path, servers_of: tuple[str, str], name: str) -> None:
    boxes = {name: {"table": name, "max_retries": 5, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1}}
    with Rig(tmp_path, database=servers_of[0], redis=servers_of[1], outbox_items=boxes) as rig:
        rig.create_tables()
        journey(rig, name)


@pytest.mark.parametrize("spoken", ["shop", "my schema", 'the "best"; --', "select", "Größe", "o'clock", "50%"])
def test_a_table_may_lie_in_a_schema_of_any_name(
    tmp_path: Path, postgres_url: str, redis_url: str, spoken: str
) -> None:
    box = {
        "table": f"{spoken}.order items",
        "max_retries": 5,
        "minimal_retry_interval": 0.05,
        "maximal_retry_interval": 0.1,
    }
    with Rig(tmp_path, database=postgres_url, redis=redis_url, box=box) as rig:
        with rig.engine.begin() as connection:
            connection.execute(sa.schema.CreateSchema(spoken))
        rig.create_tables()
        journey(rig)


def test_the_printed_ddl_of_hostile_names_makes_what_the_check_wants(
    tmp_path: Path, servers_of: tuple[str, str]
) -> None:
    for number, table in enumerate(HOSTILE):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Rig(
            folder, database=servers_of[0], redis=servers_of[1], box={"table": configured(table), "strict_order": "key"}
        ) as rig:
            with rig.engine.begin() as connection:
                for statement in schema.ddl(rig.engine.dialect.name, [rig.box()]):
                    # Past SQLAlchemy and its placeholders, as psql or a migration would.
                    connection.connection.cursor().execute(statement)
            assert checks.check(rig.engine, [rig.box()]) == []


# ── values ───────────────────────────────────────────────────────────────────────────────────────────


def test_no_value_is_ever_taken_for_sql(tmp_path: Path, servers_of: tuple[str, str]) -> None:
    with Rig(tmp_path, database=servers_of[0], redis=servers_of[1], box={"partition_strategy": "hash"}) as rig:
        rig.create_tables()

        class Failing:
            def __call__(self, item: Any, _payload: Any) -> None:
                raise ValueError(item.event_key)

        rig.carry(Failing())
        ids = [
            rig.create(text, event_name=text, payload=text.encode(), dedup_key=text, options={"headers": {text: text}})[
                0
            ]
            for text in HOSTILE
        ]
        with rig.worker() as watcher:
            watcher.wait_for_settled(len(ids))
        connected = connect_servers(rig.boxes.resolved.settings)
        for item_id, text in zip(ids, HOSTILE, strict=True):
            row = connected.items.get(rig.box(), item_id)
            assert row is not None
            assert (row.event_key, row.event_name, row.payload, row.dedup_key) == (text, text, text.encode(), text)
            assert text in (row.error_log or "")
            assert connected.items.count(rig.box(), ItemFilter(event_key=text)) == 1
        connected.close()
        assert watcher.outages == []


# ── the texts themselves ─────────────────────────────────────────────────────────────────────────────

SQL_WORDS = (
    "SELECT ",
    "INSERT ",
    "UPDATE ",
    "DELETE ",
    "COPY ",
    "CREATE ",
    "ALTER ",
    "LISTEN ",
    "WHERE ",
    " FROM ",
    "SET ",
)
HARMLESS_CALLS = {"_places", "_listed", "_finished", "len", "int", "in_text"}
"""What they return is made of placeholders, whole numbers, and names that were quoted when the table was looked up."""


def modules(package: str) -> Iterator[tuple[Path, ast.Module]]:
    root = Path(boxengine.__file__).parent
    for path in sorted((root / package).rglob("*.py")):
        yield path.relative_to(root), ast.parse(path.read_text())


def foreign_names(function: ast.FunctionDef) -> set[str]:
    """Names of a function's arguments: what it is given at run time."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return {argument.arg for argument in every} - {"self", "cls"}


def run_statements(function: ast.FunctionDef) -> bool:
    """Whether it has a cursor or a connection in its hands, so that values may be too."""
    return bool(foreign_names(function) & {"cursor", "connection", "driver", "session"})


def interpolated(text: ast.JoinedStr) -> Iterator[ast.expr]:
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            yield part.value


def tainted(expression: ast.expr, given: set[str]) -> set[str]:
    """Arguments whose values the expression would put into the text."""
    if isinstance(expression, ast.Call):
        function = expression.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if name in HARMLESS_CALLS:
            return set()
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)} & given


def test_no_function_that_runs_statements_writes_its_arguments_into_them() -> None:
    found = []
    for path, tree in modules("adapters/sql"):
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in filter(run_statements, functions):
            for text in (node for node in ast.walk(function) if isinstance(node, ast.JoinedStr)):
                literal = "".join(str(part.value) for part in text.values if isinstance(part, ast.Constant))
                if any(word in literal.upper() for word in SQL_WORDS):
                    names = set().union(*(tainted(each, foreign_names(function)) for each in interpolated(text)), set())
                    found += [f"{path}:{text.lineno}: {name}" for name in names]
    assert found == []


@pytest.mark.parametrize("hostile", ["1; DROP TABLE x", "1) OR (1=1", None, "1.5"])
def test_what_is_listed_in_a_statement_can_only_be_whole_numbers(hostile: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        _listed([hostile])  # type: ignore[list-item]


def test_no_statement_is_put_together_with_percent_or_format() -> None:
    found = []
    for path, tree in modules("adapters/sql"):
        for node in ast.walk(tree):
            left = node.left if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) else None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
                left = node.func.value
            if isinstance(left, ast.Constant) and isinstance(left.value, str):
                found.append(f"{path}:{left.lineno}")
    assert found == []


def test_nothing_in_the_package_runs_what_it_reads() -> None:
    forbidden_calls = {"eval", "exec", "compile", "__import__"}
    forbidden_attributes = {
        ("yaml", "load"), ("yaml", "full_load"), ("yaml", "unsafe_load"), ("yaml", "Loader"), ("yaml", "FullLoader"),
        ("yaml", "UnsafeLoader"), ("os", "system"), ("os", "popen"),
    }  # fmt: skip
    forbidden_modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"}
    found = []
    for path, tree in modules("."):
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in forbidden_calls:
                    found.append(f"{path}:{node.lineno}: {name}()")
                case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in forbidden_attributes:
                    found.append(f"{path}:{node.lineno}: {module}.{name}")
                case ast.Import(names=names):
                    found += [f"{path}:{node.lineno}: {each.name}" for each in names if each.name in forbidden_modules]
                case ast.ImportFrom(module=module) if module in forbidden_modules:
                    found.append(f"{path}:{node.lineno}: {module}")
                case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                    found.append(f"{path}: shell=True")
    assert found == []
