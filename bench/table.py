"""The table that the benchmarks fill and empty: exactly what ``boxengine db create`` makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg.sql import SQL, Identifier, Literal

PAYLOAD = 500
"""Bytes of an item's payload unless said otherwise."""


@dataclass(frozen=True, slots=True)
class BenchTable:
    """One box's table."""

    dsn: str
    """The connection string for psycopg."""
    name: str
    buckets: int

    def fill(self, count: int, *, hot: bool = False, delayed: bool = False) -> None:
        """Leaves ``count`` pending rows and nothing else, with fresh statistics and nothing left to write back.

        The rows are spread evenly over the buckets; ``hot``: all have the same key; ``delayed``: all wait for tomorrow.
        """
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(SQL("TRUNCATE {}").format(Identifier(self.name)))
        self.add(count, hot=hot, delayed=delayed)
        self.settle_down()

    def add(
        self,
        count: int,
        *,
        hot: bool = False,
        delivered: bool = False,
        delayed: bool = False,
        payload: int = PAYLOAD,
    ) -> None:
        """Adds rows to the existing ones, without a wake-up."""
        key, bucket = ("1", "1") if hot else ("n", f"n % {self.buckets}")
        columns, values = self._outcome(delivered=delivered)
        if delayed:
            columns, values = f"{columns}, available_at", f"{values}, now() + interval '1 day'"
        statement = SQL(
            "INSERT INTO {table} (uuid, event_key, bucket, payload{columns}) "
            "SELECT gen_random_uuid(), ({key})::text, {bucket}, convert_to(repeat('x', {payload}), 'UTF8'){values} "
            "FROM generate_series(1, {count}) AS n"
        ).format(
            table=Identifier(self.name),
            columns=SQL(columns),
            key=SQL(key),
            bucket=SQL(bucket),
            payload=Literal(payload),
            values=SQL(values),
            count=Literal(count),
        )
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)

    def _outcome(self, *, delivered: bool) -> tuple[LiteralString, LiteralString]:
        """The columns of a row's outcome and their values, to continue the lists of an INSERT."""
        return ", status, processed_at", ", 2, now()" if delivered else ", 0, NULL"

    def settle_down(self) -> None:
        """Updates the statistics, and forces a checkpoint now rather than in the middle of a measurement."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(SQL("VACUUM ANALYZE {}").format(Identifier(self.name)))
            connection.execute("CHECKPOINT")

    def pending(self) -> int:
        """The number of rows not delivered yet."""
        return self._count("status = 0")

    def delivered(self) -> int:
        """The number of delivered rows."""
        return self._count("status = 2")

    def _count(self, condition: str) -> int:
        query = SQL("SELECT count(*) FROM {} WHERE {}").format(Identifier(self.name), SQL(condition))
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute(query).fetchone()
            return int(row[0]) if row else 0


class BenchLog(BenchTable):
    """The log of a box with ``storage: log``; added rows come after the readers' positions."""

    def _outcome(self, *, delivered: bool) -> tuple[LiteralString, LiteralString]:
        if delivered:
            raise ValueError("a log's row is delivered by a worker, and by nobody else")
        return "", ""
