"""Each statement that runs against a box's table is the one in ``golden``, where it can be read and reviewed as SQL.

After a change on purpose: ``make golden-sql``, and read the difference.
"""

from __future__ import annotations

import os

import pytest

from tests.unit.sql.golden import FOLDER, REWRITE, by_statement, rendered
from tests.unit.sql.shapes import SHAPES
from tests.unit.sql.statements import creating, delivering, tables

PLACES = [
    pytest.param(dialect, name, id=f"{dialect}/{name}") for name, shape in SHAPES.items() for dialect in shape.dialects
]


def now(dialect: str, name: str) -> str:
    shape = SHAPES[name]
    sections = {"deliver": delivering(shape, dialect)}
    if not shape.old:
        # Tables of sbmt-outbox are made by its migrations, and written to as they are found.
        sections |= {"create": creating(shape, dialect), "make": tables(shape, dialect)}
    return rendered(sections)


@pytest.mark.parametrize(("dialect", "shape"), PLACES)
def test_every_statement_is_the_one_that_was_reviewed(dialect: str, shape: str) -> None:
    file, text = FOLDER / dialect / f"{shape}.sql", now(dialect, shape)
    if os.environ.get(REWRITE):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert by_statement(text) == by_statement(file.read_text())


def test_each_file_belongs_to_a_shape() -> None:
    known = {f"{dialect}/{name}.sql" for name, shape in SHAPES.items() for dialect in shape.dialects}
    assert {str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*.sql")} == known


def test_another_condition_is_noticed_and_another_line_break_is_not() -> None:
    text = now("postgresql", "plain")
    assert by_statement(text.replace("WHERE t.status = 0", "WHERE\n    t.status = 0")) == by_statement(text)
    changed = by_statement(text.replace("t.status = 0", "t.status <= 0", 1))
    assert [heading for heading, found in by_statement(text).items() if changed[heading] != found] == [
        "-- deliver: poll"
    ]
