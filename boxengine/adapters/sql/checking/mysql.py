"""What MySQL and MariaDB tell of themselves and of boxes' tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from boxengine.adapters.sql.checking import held_back
from boxengine.adapters.sql.checking.server import AREA, ServerChecks
from boxengine.adapters.sql.connecting.errors import CONFLICTS, sentence
from boxengine.adapters.sql.making.planning import LOCKED, no_answer
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.ports.people.checkup import Remark


class MySqlChecks(ServerChecks):
    """The checks of MySQL and MariaDB. InnoDB purges by itself, and tells nothing of it by table."""

    def server(self) -> Iterator[Remark]:
        version = self._connection.execute(text("SELECT VERSION()")).scalar_one()
        yield Remark(area=AREA, text=f"{'MariaDB' if 'MariaDB' in version else 'MySQL'} {version}.")
        if self._connection.execute(text("SELECT @@innodb_flush_log_at_trx_commit")).scalar_one() != 1:
            yield Remark(
                area=AREA,
                text="innodb_flush_log_at_trx_commit is not 1: committed items may be lost when the machine stops.",
                advice="Set it to 1 where items must not be lost.",
            )
        if "STRICT_" not in self._connection.execute(text("SELECT @@SESSION.sql_mode")).scalar_one():
            yield Remark(
                area=AREA,
                text="sql_mode is not strict: a payload or key that does not fit its column is cut off or altered, not refused.",
                advice="Add STRICT_TRANS_TABLES to the server's sql_mode.",
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
                f"behind which to look ({sentence(error.orig or error)}).",
            )
            return
        for thread, state, seconds in found:
            whose = f"thread {thread}, {str(state).lower()}"
            yield held_back.old_transaction(whose, seconds, f"KILL {thread}", area=AREA)
        if not found:
            yield Remark(area=AREA, text="No transaction has been open for long.")

    def privileges(self, table: BoxTable) -> Iterator[Remark]:
        try:
            self._connection.execute(text(f"SELECT id FROM {table.in_text} LIMIT 1")).all()
            for statement in ("UPDATE {} SET status = status WHERE FALSE", "DELETE FROM {} WHERE FALSE"):
                self._connection.execute(text(statement.format(table.in_text)))
        except DBAPIError as error:
            yield _unusable(table, error.orig or error)
        finally:
            self._connection.rollback()


def _unusable(table: BoxTable, error: BaseException) -> Remark:
    name, told = table.box.table, sentence(error)
    if next(iter(error.args), None) in CONFLICTS:
        said, advice = f"{table.box.name}: {no_answer(name, told)}.", LOCKED
    else:
        said, advice = (
            f"This account lacks privileges on {name} ({told}).",
            f"GRANT SELECT, UPDATE, DELETE ON {table.name} to it.",
        )
    return Remark(area=AREA, box=table.box.name, text=said, advice=advice)
