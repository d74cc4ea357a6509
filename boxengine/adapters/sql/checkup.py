"""Finds trouble in the database: privileges, indexes, dead rows, old transactions, settings that lose commits, clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from boxengine.adapters.sql import autovacuum, bloat, schema
from boxengine.adapters.sql.errors import sentence, translated
from boxengine.adapters.sql.pooler import is_pooled, shares_servers
from boxengine.adapters.sql.store import SqlStore
from boxengine.adapters.sql.tables import BoxTable
from boxengine.domain.box import Box
from boxengine.engine.checkup import LONG_TRANSACTION, clock_remark
from boxengine.errors import SchemaMismatch
from boxengine.ports.people.checkup import Remark

AREA = "database"
DEAD_SHARE = 0.5
"""The share of dead rows from which a table is reported."""
SUSPICIOUS = timedelta(seconds=10)
"""Where a table has many dead rows, an older transaction is reported: it may be what keeps vacuum from removing them."""
FEW = 20_000
"""So many dead rows are no trouble, whatever their share."""
_NEEDED = ("SELECT", "UPDATE", "DELETE")
_RISKY = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}


class SqlCheckup:
    """``Checkup`` of the database of a ``SqlStore``."""

    def __init__(self, store: SqlStore, *, models: Sequence[type] = (), now: Callable[[], datetime]) -> None:
        """Args:
        models: the users' classes for the boxes' tables.
        now: this machine's clock, with zone.
        """
        self._store = store
        self._models = models
        self._now = now

    def remarks(self, boxes: Sequence[Box]) -> list[Remark]:
        with translated(self._store.engine), self._store.engine.connect() as connection:
            server = _PostgreSql(connection) if connection.dialect.name == "postgresql" else _MySql(connection)
            found = [*server.server(), *self._clocks(connection), *self.alarms_of(server, boxes)]
            for box in boxes:
                table = self._table(box)
                if table is not None:
                    found += [*server.privileges(table), *server.autovacuum(table), *server.bloat(table)]
        return found + self._tables(boxes)

    def alarms(self, boxes: Sequence[Box]) -> list[Remark]:
        """Problems to show without being asked, found by a few cheap statements."""
        with translated(self._store.engine), self._store.engine.connect() as connection:
            server = _PostgreSql(connection) if connection.dialect.name == "postgresql" else _MySql(connection)
            return [remark for remark in self.alarms_of(server, boxes) if remark.is_finding]

    def alarms_of(self, server: _PostgreSql | _MySql, boxes: Sequence[Box]) -> Iterator[Remark]:
        tables = [table for table in map(self._table, boxes) if table is not None]
        dead = [remark for table in tables for remark in server.dead_rows(table)]
        yield from server.transactions(SUSPICIOUS if dead else LONG_TRANSACTION)
        yield from dead

    def _table(self, box: Box) -> BoxTable | None:
        try:
            return self._store.table(box)
        except SchemaMismatch:
            return None  # reported with the tables

    def _tables(self, boxes: Sequence[Box]) -> list[Remark]:
        found = [
            Remark(area=AREA, text=f"{each.box}: {each.message}", advice="boxengine db create makes it.", box=each.box)
            for each in schema.check(self._store.engine, list(boxes), self._models)
        ]
        return found or [Remark(area=AREA, text="Tables and indexes are as they should be.")]

    def _clocks(self, connection: Connection) -> Iterator[Remark]:
        before = self._now()
        query = "SELECT clock_timestamp()" if connection.dialect.name == "postgresql" else "SELECT UTC_TIMESTAMP(6)"
        told = connection.execute(text(query)).scalar_one()
        after = self._now()
        told = told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)
        yield clock_remark(AREA, "The database's clock", before, told, after)


class _PostgreSql:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def server(self) -> Iterator[Remark]:
        version = self._one("SHOW server_version")
        yield Remark(area=AREA, text=f"PostgreSQL {version}.")
        yield from self._pooler()
        for name, risky in _RISKY.items():
            if self._one(f"SHOW {name}") == risky:
                yield Remark(
                    area=AREA,
                    text=f"{name} is {risky}: committed items may be lost when the server or its machine stops.",
                    advice=f"Set {name} = on where items must not be lost.",
                )
        yield from self.slots()
        if self._one("SHOW autovacuum") != "on":
            yield Remark(
                area=AREA,
                text="autovacuum is off: every delivery leaves a dead row that nothing removes.",
                advice="Set autovacuum = on.",
            )

    def _pooler(self) -> Iterator[Remark]:
        driver: Any = self._connection.connection.driver_connection
        if self._connection.dialect.driver != "psycopg" or not is_pooled(driver):
            return
        mode = (
            "which shares server connections between transactions"
            if shares_servers(driver)
            else "perhaps in session mode"
        )
        yield Remark(
            area=AREA,
            text=f"database.url leads through a connection pooler, {mode}; LISTEN needs database.listen_url.",
        )

    def transactions(self, longer_than: timedelta) -> Iterator[Remark]:
        """Transactions that keep vacuum from removing dead rows."""
        query = (
            "SELECT pid, coalesce(application_name, ''), coalesce(state, ''), now() - xact_start FROM pg_stat_activity "
            "WHERE xact_start < now() - make_interval(secs => :long) AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend' ORDER BY xact_start LIMIT 20"
        )
        found = self._connection.execute(text(query), {"long": longer_than.total_seconds()}).all()
        for pid, name, state, age in found:
            yield _old_transaction(
                f"pid {pid}{f' ({name})' if name else ''}, {state or 'unknown'}",
                age,
                f"SELECT pg_terminate_backend({pid})",
            )
        prepared = self._connection.execute(
            text(
                "SELECT gid, now() - prepared FROM pg_prepared_xacts WHERE database = current_database() "
                "AND prepared < now() - make_interval(secs => :long) ORDER BY prepared LIMIT 20"
            ),
            {"long": longer_than.total_seconds()},
        ).all()
        for gid, age in prepared:
            literal = gid.replace("'", "''")
            end = f"ROLLBACK PREPARED '{literal}'"
            yield _old_transaction(f"prepared as {gid}, neither committed nor rolled back", age, end)
        if not found and not prepared:
            yield Remark(area=AREA, text="No transaction has been open for long.")

    def slots(self) -> Iterator[Remark]:
        """Replication slots that nobody reads, and that hold back vacuum or keep WAL."""
        query = (
            "SELECT slot_name, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0) FROM pg_replication_slots "
            "WHERE NOT active AND NOT pg_is_in_recovery() ORDER BY 1 LIMIT 20"
        )
        for name, behind in self._connection.execute(text(query)):
            yield Remark(
                area=AREA,
                text=f"Nothing reads the replication slot {name}: it keeps {int(behind) >> 20:,} MiB of the log, and dead rows.",
                advice=f"Start its reader, or run: SELECT pg_drop_replication_slot('{name}')",
            )

    def autovacuum(self, table: BoxTable) -> Iterator[Remark]:
        return autovacuum.remarks(self._connection, table, area=AREA)

    def bloat(self, table: BoxTable) -> Iterator[Remark]:
        return bloat.remarks(self._connection, table, area=AREA)

    def dead_rows(self, table: BoxTable) -> Iterator[Remark]:
        query = "SELECT n_dead_tup, n_live_tup FROM pg_stat_all_tables WHERE relid = to_regclass(:name)"
        row = self._connection.execute(text(query), {"name": table.name}).one_or_none()
        if row is None:
            return
        dead, live = int(row[0]), int(row[1])
        if dead > FEW and dead > DEAD_SHARE * (dead + live):
            yield Remark(
                area=AREA,
                box=table.box.name,
                alarming=True,
                text=f"{table.box.table} has {dead:,} dead rows and {live:,} living ones: polls have to skip the dead ones.",
                advice="End old transactions, then run: VACUUM " + table.name,
            )

    def privileges(self, table: BoxTable) -> Iterator[Remark]:
        missing = [
            each
            for each in _NEEDED
            if not self._one(
                "SELECT has_table_privilege(to_regclass(:name), :privilege)", name=table.name, privilege=each
            )
        ]
        if missing:
            yield Remark(
                area=AREA,
                box=table.box.name,
                text=f"This account may not {', '.join(missing)} on {table.box.table}.",
                advice=f"As its owner: GRANT {', '.join(missing)} ON {table.name} TO {self._one('SELECT current_user')}",
            )

    def _one(self, query: str, **values: Any) -> Any:
        return self._connection.execute(text(query), values).scalar()


class _MySql:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def server(self) -> Iterator[Remark]:
        version = self._connection.execute(text("SELECT VERSION()")).scalar_one()
        yield Remark(area=AREA, text=f"{'MariaDB' if 'MariaDB' in version else 'MySQL'} {version}.")
        if self._connection.execute(text("SELECT @@innodb_flush_log_at_trx_commit")).scalar_one() != 1:
            yield Remark(
                area=AREA,
                text="innodb_flush_log_at_trx_commit is not 1: committed items may be lost when the machine stops.",
                advice="Set it to 1 where items must not be lost.",
            )

    def transactions(self, longer_than: timedelta) -> Iterator[Remark]:
        # The server reports a transaction's start in its own zone, whatever the session's zone is.
        now = "CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')"
        query = (
            f"SELECT trx_mysql_thread_id, trx_state, TIMESTAMPDIFF(SECOND, trx_started, {now}) "
            f"FROM information_schema.innodb_trx WHERE trx_started < {now} - INTERVAL :long SECOND "
            "AND trx_mysql_thread_id <> CONNECTION_ID() ORDER BY trx_started LIMIT 20"
        )
        try:
            found = self._connection.execute(text(query), {"long": int(longer_than.total_seconds())}).all()
        except DBAPIError as error:
            self._connection.rollback()
            yield Remark(
                area=AREA, text=f"This account cannot see how long transactions have been open ({sentence(error)})."
            )
            return
        for thread, state, seconds in found:
            yield _old_transaction(
                f"thread {thread}, {str(state).lower()}", timedelta(seconds=seconds), f"KILL {thread}"
            )
        if not found:
            yield Remark(area=AREA, text="No transaction has been open for long.")

    def autovacuum(self, table: BoxTable) -> Iterator[Remark]:  # noqa: ARG002 - InnoDB purges by itself
        return iter(())

    def bloat(self, table: BoxTable) -> Iterator[Remark]:  # noqa: ARG002 - InnoDB does not tell it
        return iter(())

    def dead_rows(self, table: BoxTable) -> Iterator[Remark]:  # noqa: ARG002 - InnoDB does not tell by table
        return iter(())

    def privileges(self, table: BoxTable) -> Iterator[Remark]:
        try:
            self._connection.execute(text(f"SELECT id FROM {table.in_text} LIMIT 1")).all()
            for statement in ("UPDATE {} SET status = status WHERE FALSE", "DELETE FROM {} WHERE FALSE"):
                self._connection.execute(text(statement.format(table.in_text)))
        except DBAPIError as error:
            yield Remark(
                area=AREA,
                box=table.box.name,
                text=f"This account lacks privileges on {table.box.table} ({sentence(error.orig or error)}).",
                advice=f"GRANT SELECT, UPDATE, DELETE ON {table.name} to it.",
            )
        finally:
            self._connection.rollback()


def _old_transaction(whose: str, age: timedelta, end: str) -> Remark:
    return Remark(
        area=AREA,
        alarming=True,
        text=f"A transaction has been open for {_lasting(age)}: {whose}. Dead rows that are younger cannot be removed.",
        advice=f"End it at its source, or run: {end}",
    )


def _lasting(age: timedelta) -> str:
    seconds = max(0, round(age.total_seconds()))
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"  # noqa: PLR2004 - two minutes
