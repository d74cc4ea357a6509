"""The conformance suite's harness over SQL databases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box
from tests.conformance.stores import MAX_BATCH_BYTES, Harness


class SqlHarness(Harness):
    """Over ``SqlStore``; rows go in and out as plain SQL, on connections of the harness's own, which speak UTC.

    The stores' connections are in another time zone, as a server may well be.
    """

    def __init__(
        self, url: str, *, open_transactions: str, kill: str, set_zone: str, connect_args: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self._open_transactions, self._kill_one = open_transactions, kill
        self._engines = [connect(url, connections=5) for _ in range(2)]
        for engine in self._engines:
            sa.event.listen(engine, "connect", partial(_execute, set_zone))
        self.store, self.other = (SqlStore(engine, max_batch_bytes=MAX_BATCH_BYTES) for engine in self._engines)
        self._direct = sa.create_engine(url, connect_args=dict(connect_args), isolation_level="AUTOCOMMIT")
        self._run("CREATE TABLE effects (id int PRIMARY KEY, body varchar(100) NOT NULL)")

    def _run(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        with self._direct.connect() as connection:
            result = connection.execute(sa.text(sql), values)
            return [dict(row) for row in result.mappings()] if result.returns_rows else []

    def now(self) -> datetime:
        (row,) = self._run("SELECT CURRENT_TIMESTAMP(6) AS now")
        moment: datetime = _with_zone(row["now"])
        return moment

    def insert(self, box: Box, *, event_key: object = "k", bucket: int = 0, **columns: Any) -> int:
        now = columns.get("created_at") or self.now()
        values = {
            "uuid": str(uuid4()),
            "event_key": str(event_key),
            "bucket": bucket,
            "status": 0,
            "payload": b"",
            "errors_count": 0,
            "created_at": now,
            "updated_at": now,
            **columns,
        }
        return self._insert(box.table, values)

    def _insert(self, table: str, values: Mapping[str, Any]) -> int:
        names = ", ".join(values)
        places = ", ".join(f":{name}" for name in values)
        sql = sa.text(f"INSERT INTO {table} ({names}) VALUES ({places})")
        with self._direct.connect() as connection:
            if connection.dialect.name == "postgresql":
                return int(connection.execute(sa.text(f"{sql} RETURNING id"), _plain(values)).scalar_one())
            return int(connection.execute(sql, _plain(values)).lastrowid)

    def rows(self, box: Box) -> list[Mapping[str, Any]]:
        rows = self._run(f"SELECT * FROM {box.table} ORDER BY id")
        return [{name: _with_zone(value) for name, value in row.items()} for row in rows]

    def set_row(self, box: Box, row_id: int, **columns: Any) -> None:
        changes = ", ".join(f"{name} = :{name}" for name in columns)
        self._run(f"UPDATE {box.table} SET {changes} WHERE id = :row_id", row_id=row_id, **_plain(columns))

    def refuse(self, box: Box, row_id: int, *, even_failed: bool = False) -> None:
        # Pending and untouched, as it is, it stays allowed.
        allowed = "status = 0 AND processed_at IS NULL" + ("" if even_failed else " OR status = 1")
        (row,) = self._run(
            f"SELECT uuid FROM {box.table} WHERE id = {row_id}"
        )  # a constraint over the id MariaDB refuses
        condition = f"uuid <> '{row['uuid']}' OR ({allowed})"
        self._run(f"ALTER TABLE {box.table} ADD CONSTRAINT refuses_{row_id} CHECK ({condition})".replace(":", "\\:"))

    def add_effect(self, session: Any, text: str) -> None:
        session.execute(
            sa.text("INSERT INTO effects (id, body) SELECT COALESCE(MAX(id), 0) + 1, :body FROM effects"),
            {"body": text},
        )

    def effects(self) -> list[str]:
        return [row["body"] for row in self._run("SELECT body FROM effects ORDER BY id")]

    def break_open_claims(self) -> None:
        for transaction in self._run(self._open_transactions):
            self._run(self._kill_one.format(**transaction))

    def close(self) -> None:
        for engine in (*self._engines, self._direct):
            engine.dispose()

    def _box_added(self, box: Box) -> None:
        schema.create(self._engines[0], [box])


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that a driver takes for columns with a zone (the connection's is UTC) and for those without."""
    return {name: _without_zone(value) if name != "options" else json.dumps(value) for name, value in values.items()}


def _without_zone(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def _with_zone(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _execute(sql: str, connection: Any, _record: Any) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute(sql)
    connection.commit()


def of_postgresql() -> dict[str, Any]:
    """What a harness over PostgreSQL is made with."""
    return {
        "connect_args": {"options": "-c timezone=UTC"},
        "set_zone": "SET TIME ZONE 'Asia/Kolkata'",
        "open_transactions": (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
        ),
        "kill": "SELECT pg_terminate_backend({pid})",
    }


def postgresql(url: str) -> SqlHarness:
    """The harness over PostgreSQL."""
    return SqlHarness(url, **of_postgresql())


def mysql(url: str) -> SqlHarness:
    """The harness over MySQL and MariaDB."""
    return SqlHarness(
        url,
        connect_args={"init_command": "SET SESSION time_zone = '+00:00'"},
        set_zone="SET SESSION time_zone = '+05:30'",
        open_transactions=(
            "SELECT t.trx_mysql_thread_id AS id FROM information_schema.innodb_trx AS t "
            "JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()"
        ),
        kill="KILL CONNECTION {id}",
    )
