"""Inserts rows of a box with ``sequence``: the preceding statement gives each row the next number of its key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat

from sqlalchemy import Connection, Table, select

from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.creating.known_rows import Mark
from boxengine.adapters.sql.creating.sequence import LONGEST_KEY, Numbering
from boxengine.adapters.sql.waking.eased_notify import EasedNotify
from boxengine.domain.box import Box
from boxengine.errors import SchemaMismatch, StoreUnavailable
from boxengine.ports import Attributes, Inserted, Signal


class NumberedRows(SqlRows):
    """``Rows`` of one box whose items are numbered."""

    def __init__(
        self,
        box: Box,
        model: type | None = None,
        *,
        notify: bool = False,
        signal: Callable[[list[Signal]], None] | None = None,
        eased: EasedNotify | None = None,
    ) -> None:
        """Args as of ``SqlRows``.

        Raises:
            SchemaMismatch: the model has no column for the numbers.
        """
        super().__init__(box, model, notify=notify, signal=signal, eased=eased)
        if model is not None and "seq" not in self._table.columns:
            raise SchemaMismatch(
                f"box {box.name}: {model.__name__} has no column seq for its sequence; "
                "add boxengine.SequencedItem to its bases"
            )
        self._numbering = Numbering(box, self._table, into=self._into)

    def _use(self, table: Table) -> None:
        super()._use(table)
        # The counters' column is as long as in other tables until it is looked up.
        self._longest = {**self._longest, "event_key": min(self._longest["event_key"], LONGEST_KEY)}

    def _lengths_in(self, connection: Connection) -> dict[str, int]:
        """A key must fit the table's column and the counters'."""
        self._demand_column()
        found = super()._lengths_in(connection)
        return found | {"event_key": min(found["event_key"], self._numbering.longest_key(connection))}

    @property
    def columns(self) -> frozenset[str]:
        return super().columns - {"seq"}

    def _demand_column(self) -> None:
        if "seq" not in self._table.columns:
            raise SchemaMismatch(
                f"box {self._box.name}: table {self._box.table!r} has no column seq for its sequence; "
                "add it with: boxengine db create"
            )

    def _lone(self, connection: Connection, row: Attributes) -> Attributes:
        self._demand_column()
        (numbered,) = self._numbering.number(connection, [row])
        return numbered

    def _insert_rows(self, connection: Connection, rows: Sequence[Attributes], *, keyed: bool) -> Inserted:
        self._demand_column()
        if not keyed:
            return super()._insert_rows(connection, self._numbering.number(connection, rows), keyed=False)
        # First keep others from adding rows of these keys, then ask which rows are new: only these get numbers.
        self._numbering.hold(connection, rows)
        found = self._known.look_up(connection, self._into(connection), rows, {}, locked=False)
        known = frozenset(found.values())
        new = self._new(rows, found)
        ids: dict[int, int] = {}
        if new:
            numbered = self._numbering.number(connection, [rows[place] for place in new])
            inserted = super()._insert_rows(connection, numbered, keyed=True)
            self._insist_on(connection, inserted, numbered)
            ids = dict(zip(new, inserted.ids, strict=True))
            for place, row_id in ids.items():
                found.update(zip(self._known.marks_of(rows[place]), repeat(row_id)))
        return Inserted([ids.get(place) or self._known.id_of(found, row) for place, row in enumerate(rows)], known)

    def _new(self, rows: Sequence[Attributes], found: dict[Mark, int]) -> list[int]:
        """The places of rows that are neither in the table nor earlier among these."""
        seen, new = set(found), []
        for place, row in enumerate(rows):
            own = self._known.marks_of(row)
            if seen.isdisjoint(own):
                new.append(place)
                seen.update(own)
        return new

    def _insist_on(self, connection: Connection, inserted: Inserted, numbered: Sequence[Attributes]) -> None:
        """Makes sure that every numbered row was inserted. The writer of another key, or one that this transaction's snapshot
        does not show, may have inserted the same item first."""
        taken = bool(inserted.known)
        inserts = self._into(connection)
        if not inserts.tells_new:
            columns = self._table.c
            query = inserts.latest(select(columns.id, columns.seq).where(columns.id.in_(inserted.ids)))
            wanted = {row_id: row["seq"] for row_id, row in zip(inserted.ids, numbered, strict=True)}
            taken = dict(connection.execute(query).all()) != wanted
        if taken:
            raise StoreUnavailable(
                f"box {self._box.name}: another transaction has just written one of these items, and a number would be lost: "
                "roll back and write them again"
            )
