"""What PostgreSQL tells of itself and of boxes' tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import text

from boxengine.adapters.sql.checking import autovacuum, bloat, held_back
from boxengine.adapters.sql.checking.held_back import lasting
from boxengine.adapters.sql.checking.server import AREA, ServerChecks
from boxengine.adapters.sql.connecting.pooler import is_pooled, shares_servers
from boxengine.adapters.sql.log.partitions import partitions_of
from boxengine.adapters.sql.log.readers import READERS, Readers
from boxengine.adapters.sql.log.stage import Stage, stage_of
from boxengine.adapters.sql.log.tables import LogTable, names_in, reflect_log
from boxengine.adapters.sql.making.row_security import hidden_rows, may_hide
from boxengine.adapters.sql.shape.tables import BoxTable, quoted
from boxengine.domain.box import Storage
from boxengine.errors import SchemaMismatch
from boxengine.ports.people.checkup import Remark

DEAD_SHARE = 0.5
"""The share of dead rows from which a table is reported."""
ACCOUNT = "SELECT quote_ident(current_user)"
FEW = 20_000
"""So many dead rows are no trouble, whatever their share."""
_AT_ONCE = 16
"""Deliveries from logs that may be under way at once: two workers of eight threads."""
_LOCKS = (
    "SELECT CAST(current_setting('max_locks_per_transaction') AS int) * (CAST(current_setting('max_connections') AS int) "
    "+ CAST(current_setting('max_prepared_transactions') AS int))"
)
"""For how many locks of all sessions the server has room."""
_WAITING_COMMITS = text(
    "SELECT count(*), coalesce(extract(epoch FROM max(now() - state_change)), 0) FROM pg_stat_activity "
    "WHERE wait_event = 'SyncRep' AND state_change < now() - make_interval(secs => :long)"
)
"""Of other accounts, the server shows them only to a member of ``pg_read_all_stats``."""
_RISKY = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}


class PostgresChecks(ServerChecks):
    """The checks of PostgreSQL."""

    def server(self) -> Iterator[Remark]:
        version = self._one("SHOW server_version")
        yield Remark(area=AREA, text=f"PostgreSQL {version}.")
        yield from self._writes()
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

    def _writes(self) -> Iterator[Remark]:
        if self._one("SHOW transaction_read_only") != "on":
            return
        if self._one("SELECT pg_is_in_recovery()"):
            yield Remark(
                area=AREA,
                text="The server is a standby: a worker that is connected to it delivers nothing.",
                advice="Let database.url lead to the primary.",
            )
            return
        account = self._one(ACCOUNT)
        yield Remark(
            area=AREA,
            text="Sessions of this account are read-only: a worker that uses it delivers nothing.",
            advice=f"ALTER ROLE {account} RESET default_transaction_read_only, or where else it is set: in the database, the "
            "server or the URL",
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

    def commits(self, longer_than: timedelta) -> Iterator[Remark]:
        waits = {"long": longer_than.total_seconds()}
        number, seconds = self._connection.execute(_WAITING_COMMITS, waits).one()
        if number:
            yield Remark(
                area=AREA,
                alarming=True,
                stops=True,
                text=f"Commits wait for a synchronous standby, the first for {lasting(seconds)}: nothing is delivered meanwhile.",
                advice="Bring the standby back, or take it out of synchronous_standby_names and run: SELECT pg_reload_conf()",
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
        account = self._one(ACCOUNT)
        for name, shown, needed in self._needed(table):
            has = "SELECT has_table_privilege(to_regclass(:name), :privilege)"
            missing = [each for each in needed if not self._one(has, name=name, privilege=each)]
            if missing:
                yield Remark(
                    area=AREA,
                    box=table.box.name,
                    text=f"This account may not {', '.join(missing)} on {shown}.",
                    advice=f"As its owner: GRANT {', '.join(missing)} ON {name} TO {account}",
                )
            elif may_hide(self._connection, name):
                yield hidden_rows(name, shown, account=account, area=AREA, box=table.box.name)
        yield from self._partitions(table, account)

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

    def _partitions(self, table: BoxTable, account: str) -> Iterator[Remark]:
        """Whether there are too many in the log, and whether this account may make and drop them, as its worker has to."""
        log = self._log(table)
        found = None if log is None else partitions_of(self._connection, log.log)
        if found is not None:
            yield from self._room_for_locks(table, len(found.ranges))
        if found is not None and not found.may_alter:
            yield Remark(
                area=AREA,
                box=table.box.name,
                text=f"This account may not make and drop partitions of {names_in(table.box)[0]}: it does not own it.",
                advice=f"GRANT {quoted(self._connection.dialect, found.owner)} TO {account}, or run boxengine cleanup as "
                f"{found.owner} every few hours.",
            )

    def _room_for_locks(self, table: BoxTable, partitions: int) -> Iterator[Remark]:
        """Whether deliveries might use up what the server has for the locks of all its sessions."""
        # Each partition and its two indexes, whichever of them are read.
        locks, room = 3 * partitions, int(self._one(_LOCKS))
        if locks * _AT_ONCE > room:
            yield Remark(
                area=AREA,
                box=table.box.name,
                text=f"{names_in(table.box)[0]} has {partitions} partitions. Each delivery takes {locks:,} locks, and the server "
                f"has room for {room:,}. Without room, deliveries and applications fail with: out of shared memory.",
                advice="Raise max_locks_per_transaction and restart the server. For fewer partitions, lengthen log_partitions, "
                "or let retention keep less.",
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
