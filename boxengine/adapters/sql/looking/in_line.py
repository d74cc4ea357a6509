"""Which rows wait for which: what strict order holds back, and what it holds it back for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, text

from boxengine.adapters.sql.delivering.fronts import HELD, behind_front, held
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import StrictOrder
from boxengine.ports import ItemRow

_SEARCHED_BEFORE = 1_000
"""Pending rows that are searched at each end of a bucket for the one that holds back another."""


class InLine:
    """The pending rows of the buckets, in the order in which workers go through them."""

    def __init__(self, found: BoxTable, connection: Connection, fronts: Callable[[], Mapping[int, int]]) -> None:
        """Args:
        fronts: by bucket, the id after which its pending rows begin.
        """
        self._found = found
        self._box = found.box
        self._connection = connection
        self._postgresql = connection.dialect.name == "postgresql"
        self._fronts = fronts

    def tried(self, share: int) -> list[int]:
        """Pending rows with failed attempts among the first of each bucket, beginning at the fronts."""
        first = f"ORDER BY t.bucket, t.id LIMIT {share:d}"
        if self._postgresql:
            of_bucket = f"SELECT t.id, t.errors_count FROM {self._name} AS t WHERE t.status = 0 AND {behind_front('t.')} {first}"
            union = f"SELECT i.* FROM {HELD} CROSS JOIN LATERAL ({of_bucket}) AS i"
        else:
            union = " UNION ALL ".join(
                f"(SELECT t.id, t.errors_count FROM {self._name} AS t {self._hint} "
                f"WHERE t.status = 0 AND t.bucket = {bucket} AND t.id > 0 {first})"
                for bucket in self._box.buckets
            )
        query = f"SELECT id FROM ({union}) AS w WHERE errors_count > 0 ORDER BY id LIMIT 1000"
        values = held(self._fronts()) if self._postgresql else {}
        return [int(row[0]) for row in self._connection.execute(text(query), values)]

    def first_troubled_before(self, row: ItemRow) -> int | None:
        """The first pending or failed row that keeps this one waiting."""
        if self._box.strict_order is StrictOrder.BUCKET:
            return self._first_troubled_of_bucket(row)
        delayed = " OR e.available_at IS NOT NULL" if self._found.has("available_at") else ""
        of_bucket = "e.bucket = :bucket AND e.id < :id"
        if self._postgresql:
            troubled = f"(e.status = 1 OR (e.status = 0 AND (e.errors_count > 0{delayed})))"
            where = [f"{of_bucket} AND e.event_key = :key AND {troubled} ORDER BY e.bucket, e.event_key, e.id"]
        else:
            key = "e.event_key = :key"
            where = [
                f"{of_bucket} AND {key} AND e.status = 1 ORDER BY e.id",
                f"{of_bucket} AND {key} AND e.status = 0 AND (e.errors_count > 0{delayed}) ORDER BY e.id",
            ]
        values = {"bucket": row.bucket, "id": row.id, "key": row.event_key}
        found = [
            self._connection.execute(text(f"SELECT e.id FROM {self._name} AS e WHERE {each} LIMIT 1"), values).scalar()
            for each in where
        ]
        return min((int(each) for each in found if each is not None), default=None)

    def _first_troubled_of_bucket(self, row: ItemRow) -> int | None:
        """Among the first pending rows of its bucket, which workers go through first, and the last ones before it.

        No index leads to it in every table, and so all rows between them would have to be read.
        """
        delayed = "t.available_at" if self._found.has("available_at") else "NULL"
        side = (
            f"SELECT t.id, t.errors_count, {delayed} AS not_before FROM {self._name} AS t {self._mysql_hint} "
            "WHERE t.status = 0 AND t.bucket = :bucket AND t.id > :front AND t.id < :id ORDER BY "
        )
        first, last = f"({side} t.bucket, t.id LIMIT :limit)", f"({side} t.bucket DESC, t.id DESC LIMIT :limit)"
        query = f"SELECT min(id) FROM ({first} UNION ALL {last}) AS w WHERE errors_count > 0 OR not_before IS NOT NULL"
        values = {"bucket": row.bucket, "front": self._front(row), "id": row.id, "limit": _SEARCHED_BEFORE}
        found = self._connection.execute(text(query), values).scalar()
        return None if found is None else int(found)

    def pending_before(self, row: ItemRow, limit: int) -> int:
        return self._counted(
            f"SELECT t.id FROM {self._name} AS t {self._mysql_hint} "
            "WHERE t.status = 0 AND t.bucket = :bucket AND t.id > :front AND t.id < :id "
            "ORDER BY t.bucket, t.id LIMIT :limit",
            {"bucket": row.bucket, "front": self._front(row), "id": row.id, "limit": limit},
        )

    def pending_after(self, row: ItemRow, limit: int) -> tuple[int, int]:
        """How many of the next pending rows of the bucket wait for this one, and how many were looked at."""
        window = (
            f"SELECT t.id, t.event_key FROM {self._name} AS t {self._mysql_hint} "
            "WHERE t.status = 0 AND t.bucket = :bucket AND t.id > :id ORDER BY t.bucket, t.id LIMIT :limit"
        )
        values: dict[str, Any] = {"bucket": row.bucket, "id": max(row.id, self._front(row)), "limit": limit}
        same = "1"
        if self._box.strict_order is not StrictOrder.BUCKET:
            stored = "w.event_key::text" if self._found.numeric_keys and self._postgresql else "w.event_key"
            same, values["key"] = f"CASE WHEN {stored} = :key THEN 1 ELSE 0 END", row.event_key
        query = f"SELECT coalesce(sum({same}), 0), count(*) FROM ({window}) AS w"
        number, looked_at = self._connection.execute(text(query), values).one()
        return int(number), int(looked_at)

    def _front(self, row: ItemRow) -> int:
        """The id after which the pending rows of its bucket begin."""
        return self._fronts().get(row.bucket, 0)

    def _counted(self, rows: str, values: dict[str, Any]) -> int:
        return int(self._connection.execute(text(f"SELECT count(*) FROM ({rows}) AS w"), values).scalar_one())

    @property
    def _mysql_hint(self) -> str:
        return "" if self._postgresql else self._hint

    @property
    def _hint(self) -> str:
        index = self._found.status_index
        return "" if index is None else f"FORCE INDEX ({_literal(index)})"

    @property
    def _name(self) -> str:
        return self._found.in_text


def _literal(name: str) -> str:
    """A quoted name escaped for SQLAlchemy's ``text``, where a colon begins a parameter."""
    return name.replace(":", "\\:")
