"""One look at many tables, some of which give no answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from psycopg.errors import UndefinedColumn, UndefinedTable
from pymysql import ProgrammingError

from boxengine.adapters.sql.delivering.pending import PendingLook
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import Box, BoxType
from boxengine.errors import StoreConflict, StoreUnavailable


def table(number: int) -> BoxTable:
    box = Box(name=f"box_{number}", type=BoxType.OUTBOX, table=f"table_{number}", bucket_size=4)
    return BoxTable(box=box, name=box.table, columns=frozenset(), payload="payload", zoned=frozenset())


TABLES = [table(number) for number in range(160)]


class Database:
    """Rows are pending in the last box."""

    def __init__(self) -> None:
        self.locked: set[str] = set()
        self.error: StoreUnavailable = StoreConflict("somebody has locked the table")
        self.asked: list[list[str]] = []

    def ask(self, tables: Sequence[BoxTable]) -> list[str]:
        names = [each.box.name for each in tables]
        self.asked.append(names)
        if self.locked.intersection(names):
            raise self.error
        return [name for name in names if name == TABLES[-1].box.name]


@pytest.mark.parametrize("reason", [None, UndefinedTable(), UndefinedColumn(), ProgrammingError(1146, "no such table")])
def test_a_table_that_is_locked_or_was_changed_is_asked_by_itself_until_it_answers(reason: Exception | None) -> None:
    database = Database()
    if reason is not None:
        database.error = StoreUnavailable("the table has changed")
        database.error.__cause__ = reason
    look = PendingLook(database.ask)
    database.locked = {"box_77"}
    assert look.names(TABLES) == {"box_77", "box_159"}
    database.asked.clear()
    assert look.names(TABLES) == {"box_77", "box_159"}
    assert [names for names in database.asked if "box_77" in names] == [["box_77"]]
    assert len(database.asked) == 5
    database.locked = set()
    assert look.names(TABLES) == {"box_159"}
    database.asked.clear()
    assert look.names(TABLES) == {"box_159"}
    assert len(database.asked) == 4


def test_where_many_tables_are_locked_the_look_fails_before_it_has_waited_for_each() -> None:
    database = Database()
    look = PendingLook(database.ask)
    database.locked = {each.box.name for each in TABLES}
    for _ in range(3):
        database.asked.clear()
        with pytest.raises(StoreConflict):
            look.names(TABLES)
        assert len(database.asked) < 20
    database.locked = set()
    for _ in range(2):
        assert look.names(TABLES) == {"box_159"}


def test_a_database_that_is_away_is_asked_once() -> None:
    asked = list[int]()

    def away(tables: Sequence[BoxTable]) -> list[str]:
        asked.append(len(tables))
        raise StoreUnavailable("connection refused")

    with pytest.raises(StoreUnavailable, match="refused"):
        PendingLook(away).names(TABLES)
    assert asked == [50]
