"""Finds trouble in the database: privileges, indexes, dead rows, old transactions, settings that lose commits, clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from boxengine.adapters.sql.checking import autovacuum, bloat, held_back
from boxengine.adapters.sql.connecting import clock
from boxengine.adapters.sql.connecting.errors import sentence, translated
from boxengine.adapters.sql.connecting.pooler import is_pooled, shares_servers
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.log.partitions import partitions_of
from boxengine.adapters.sql.log.readers import READERS, Readers
from boxengine.adapters.sql.log.stage import Stage, stage_of
from boxengine.adapters.sql.log.tables import LogTable, names_in, reflect_log
from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import Box, Storage
from boxengine.engine.checkup import LONG_TRANSACTION, clock_remark
from boxengine.errors import SchemaMismatch
from boxengine.ports.people.checkup import Remark

AREA = "database"
DEAD_SHARE = 0.5
"""The share of dead rows from which a table is reported."""
SUSPICIOUS = timedelta(seconds=10)
"""Where a table has many dead rows, an older transaction is reported: it may be what keeps vacuum from removing them."""
BEHIND, SLIGHTLY_BEHIND = 1_000_000, 1_000
"""Transactions after which a query on a standby is reported; the second where a table has many dead rows."""
FEW = 20_000
"""So many dead rows are no trouble, whatever their share."""
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
                    found += server.conversion(table)
        return found + self._tables(boxes)

    def alarms(self, boxes: Sequence[Box]) -> list[Remark]:
        """Problems to show without being asked, found by a few cheap statements."""
        with translated(self._store.engine), self._store.engine.connect() as connection:
            server = _PostgreSql(connection) if connection.dialect.name == "postgresql" else _MySql(connection)
            return [remark for remark in self.alarms_of(server, boxes) if remark.is_finding]

    def decay(self, boxes: Sequence[Box]) -> list[Remark]:
        """Findings about what makes deliveries slower and slower: old transactions, slots, dead rows, late vacuums."""
        with translated(self._store.engine), self._store.engine.connect() as connection:
            server = _PostgreSql(connection) if connection.dialect.name == "postgresql" else _MySql(connection)
            found = [*self.alarms_of(server, boxes), *server.slots()]
            for table in filter(None, map(self._table, boxes)):
                found += server.autovacuum(table)
            return [remark for remark in found if remark.is_finding]

    def alarms_of(self, server: _PostgreSql | _MySql, boxes: Sequence[Box]) -> Iterator[Remark]:
        tables = [table for table in map(self._table, boxes) if table is not None]
        dead = [remark for table in tables for remark in server.dead_rows(table)]
        yield from server.transactions(SUSPICIOUS if dead else LONG_TRANSACTION)
        yield from server.standbys(SLIGHTLY_BEHIND if dead else BEHIND)
        yield from dead

    def _table(self, box: Box) -> BoxTable | None:
        try:
            return self._store.table(box)
        except SchemaMismatch:
            return None  # reported with the tables

    def _tables(self, boxes: Sequence[Box]) -> list[Remark]:
        found = [
            Remark(area=AREA, text=f"{each.box}: {each.message}", advice=each.remedy, box=each.box)
            for each in schema.check(self._store.engine, list(boxes), self._models)
        ]
        return found or [Remark(area=AREA, text="Tables and indexes are as they should be.")]

    def _clocks(self, connection: Connection) -> Iterator[Remark]:
        before = self._now()
        told = connection.execute(text(clock.question(connection.dialect.name))).scalar_one()
        yield clock_remark(AREA, "The database's clock", before, clock.in_utc(told), self._now())


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
        return held_back.transactions(self._connection, longer_than, area=AREA)

    def standbys(self, more_than: int) -> Iterator[Remark]:
        return held_back.standbys(self._connection, more_than, area=AREA)

    def slots(self) -> Iterator[Remark]:
        return held_back.slots(self._connection, area=AREA)

    def autovacuum(self, table: BoxTable) -> Iterator[Remark]:
        yield from autovacuum.remarks(self._connection, table, area=AREA)
        log = self._log(table)
        if log is not None:
            yield from autovacuum.remarks_on_log(self._connection, table.box, log, area=AREA)

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
        for name, shown, needed in self._needed(table):
            has = "SELECT has_table_privilege(to_regclass(:name), :privilege)"
            missing = [each for each in needed if not self._one(has, name=name, privilege=each)]
            if missing:
                yield Remark(
                    area=AREA,
                    box=table.box.name,
                    text=f"This account may not {', '.join(missing)} on {shown}.",
                    advice=f"As its owner: GRANT {', '.join(missing)} ON {name} TO {self._one('SELECT current_user')}",
                )

        yield from self._partitions(table)

    def conversion(self, table: BoxTable) -> Iterator[Remark]:
        """Whether ``db convert`` was begun and not finished."""
        box = table.box
        if stage_of(self._connection, table) is Stage.BOTH:
            # The configuration does not tell which way: it may be the old one or the new one.
            ways = " ".join(
                f"{aim}: set storage: {to} everywhere, then run boxengine db convert {box.name} --to {to} --finish."
                for aim, to in (("To a log", Storage.LOG), ("To a table", Storage.TABLE))
            )
            yield Remark(
                area=AREA,
                box=box.name,
                text=f"Box {box.name} is between table and log: its conversion is not finished; items are written to the table.",
                advice=ways,
            )

    def _partitions(self, table: BoxTable) -> Iterator[Remark]:
        """Whether this account may make and drop those of the log, as its worker has to."""
        log = self._log(table)
        found = None if log is None else partitions_of(self._connection, log.log)
        if found is not None and not found.may_alter:
            yield Remark(
                area=AREA,
                box=table.box.name,
                text=f"This account may not make and drop partitions of {names_in(table.box)[0]}: it does not own it.",
                advice=f"GRANT {found.owner} TO {self._one('SELECT current_user')}, or run boxengine cleanup as {found.owner} "
                "every few hours.",
            )

    def _needed(self, table: BoxTable) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """The box's tables, quoted and as people write them, each with the privileges that a worker needs."""
        if table.box.storage is Storage.TABLE:
            yield table.name, table.box.table, ("SELECT", "UPDATE", "DELETE")
            return
        # What fails is copied to the side table.
        yield table.name, table.box.table, ("SELECT", "INSERT", "UPDATE", "DELETE")
        if table.box.subscription is not None:
            source = table.box.source.table.rpartition(".")[2]
            yield Readers.of(table).listed, source + READERS, ("SELECT",)
        found = self._log(table)
        if found is not None:
            log, positions = names_in(table.box)
            yield found.log, log, ("SELECT", "DELETE")
            yield found.positions, positions, ("SELECT", "UPDATE")

    def _log(self, table: BoxTable) -> LogTable | None:
        if table.box.storage is Storage.TABLE:
            return None
        try:
            return reflect_log(self._connection, table)
        except SchemaMismatch:
            return None  # reported with the tables

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
                area=AREA,
                text=f"This account cannot see how long transactions have been open, and a worker that uses it has no bounds "
                f"behind which to look ({sentence(error)}).",
            )
            return
        for thread, state, seconds in found:
            whose = f"thread {thread}, {str(state).lower()}"
            yield held_back.old_transaction(whose, timedelta(seconds=seconds), f"KILL {thread}", area=AREA)
        if not found:
            yield Remark(area=AREA, text="No transaction has been open for long.")

    def standbys(self, more_than: int) -> Iterator[Remark]:  # noqa: ARG002 - a replica's queries hold back no purge
        return iter(())

    def slots(self) -> Iterator[Remark]:
        return iter(())

    def autovacuum(self, table: BoxTable) -> Iterator[Remark]:  # noqa: ARG002 - InnoDB purges by itself
        return iter(())

    def bloat(self, table: BoxTable) -> Iterator[Remark]:  # noqa: ARG002 - InnoDB does not tell it
        return iter(())

    def dead_rows(self, table: BoxTable) -> Iterator[Remark]:  # noqa: ARG002 - InnoDB does not tell by table
        return iter(())

    def conversion(self, table: BoxTable) -> Iterator[Remark]:  # noqa: ARG002 - there are no logs here
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
