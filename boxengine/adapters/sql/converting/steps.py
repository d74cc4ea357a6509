"""What each step of a conversion runs, as SQL: one list is one transaction."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, Table, text

from boxengine.adapters.sql.converting.redirects import BY_INDEX, NOT_IN_A_LOG, Redirects
from boxengine.adapters.sql.dialects.postgresql import lock_space
from boxengine.adapters.sql.log import parts
from boxengine.adapters.sql.log.stage import TO_LOG, TO_TABLE, Stage, Standing
from boxengine.adapters.sql.log.tables import (
    identifying,
    in_text,
    is_logged,
    referring_constraints,
    refuse_old_servers,
    with_partitions,
)
from boxengine.adapters.sql.making import sizes
from boxengine.adapters.sql.shape.tables import quoted
from boxengine.adapters.sql.waking.listen import CHANNEL
from boxengine.domain.box import Box, Storage
from boxengine.domain.words import plural
from boxengine.errors import SchemaMismatch
from boxengine.ports import Signal

FOR_DELIVERIES = 30
"""Seconds for which a step waits until the delivery of a bucket has ended. Writers do not wait for that."""


class Steps:
    """The steps of one box, in the transaction that takes them."""

    def __init__(self, connection: Connection, found: Standing, table: Table, *, lock_timeout: float) -> None:
        """Args:
        table: what the box's table is made of.
        lock_timeout: seconds for which writers may be held up.
        """
        self._connection = connection
        self._found = found
        self._box: Box = found.side.box
        self._table = table
        # It holds for each lock, and a step needs two: whoever waits behind the first waits for both.
        self._limit = _limit(lock_timeout / 2)
        self._texts = Redirects(connection.dialect, found.side, found.log, found.positions, self._columns())

    def lock_log(self) -> list[str]:
        return [self._limit, f"LOCK TABLE {self._found.log} IN SHARE ROW EXCLUSIVE MODE"]

    def make_log(self) -> list[str]:
        """In one transaction with its trigger, so that nobody finds a log without it."""
        refuse_old_servers(self._connection, self._table.name)
        sequence = parts.sequence_of(self._connection, self._table, self._box)
        there = parts.as_it_is(self._connection, self._table)
        needed = parts.parts(self._connection.dialect, there, self._box, sequence=sequence)
        made = [part.sql for part in needed if not part.is_there(self._connection)]
        triggers = [*self._texts.functions(), self._texts.trigger_of_log()]
        return [self._limit, *made, *self._identity(), *triggers, *self._mark(None)]

    def identify(self) -> list[str]:
        """Before the log's rows are moved away once more."""
        identity = self._identity()
        return [self._limit, *identity] if identity else []

    def switch_to_log(self) -> list[str]:
        found, texts = self._found, self._texts
        # Replacing a function takes no lock on the tables; later writers use the new one.
        statements = [self._limit, *texts.functions(), texts.lock(first=Storage.LOG)]
        statements.append(texts.turn(TO_LOG, on=True) if found.has_trigger else texts.trigger_of_table())
        if found.stage is Stage.BOTH:
            statements += [texts.turn(TO_TABLE, on=False), texts.begin_now()]
        return [*statements, *self._mark(Storage.LOG)]

    def hold(self, buckets: Iterable[int]) -> list[str]:
        """Waits for the deliveries of these buckets, and keeps others out."""
        space = lock_space(self._found.side)
        return [_limit(FOR_DELIVERIES), *(f"SELECT pg_advisory_xact_lock({space}, {bucket})" for bucket in buckets)]

    def copy(self, bucket: int | None = None) -> list[str]:
        return [*BY_INDEX, self._texts.copy(bucket)]

    def lock_both(self) -> list[str]:
        """For the way back to the table."""
        return [self._limit, *self._texts.functions(), self._texts.lock(first=Storage.TABLE)]

    def switch_to_table(self) -> list[str]:
        """For a transaction that holds all buckets, has locked both tables and copied what was left in the log."""
        found, texts = self._found, self._texts
        statements = [texts.turn(TO_TABLE, on=True) if found.log_has_trigger else texts.trigger_of_log()]
        if found.has_trigger:
            statements.append(texts.turn(TO_LOG, on=False))
        # Bounds of workers with the other storage may lie behind what was copied.
        again = Signal(self._box.name, None, again=True).encode().replace("'", "''")
        return [*statements, *self._mark(None), f"SELECT pg_notify('{CHANNEL}', '{again}')"]

    def drop_log(self) -> list[str]:
        found = self._found
        dropped = f"DROP TABLE {found.log}, {found.positions}"
        return [self._limit, dropped, f"DROP FUNCTION {self._texts.to_table}()", *self._mark(Storage.TABLE)]

    def drop_trigger(self) -> list[str]:
        return [self._limit, f"DROP FUNCTION {self._texts.to_log}() CASCADE"]

    def refuse_items(self) -> None:
        """Raises:
        SchemaMismatch: applications create items that they could not create with a log.
        """
        side = self._found.side
        names = [name for name in NOT_IN_A_LOG if side.has(name)]
        if not names:
            return
        query = f"SELECT count({'), count('.join(names)}) FROM {side.in_text} WHERE status = 0"
        counts = self._connection.execute(text(query)).one()
        for name, number in zip(names, counts, strict=True):
            if number:
                raise SchemaMismatch(
                    f"box {self._box.name}: {plural(number, 'pending item')} with {name}: storage: log refuses to create "
                    "such items. Convert the box once applications create none, and these are delivered"
                )

    def refuse_references(self) -> None:
        """Raises:
        SchemaMismatch: other tables refer to the items, which would not be found there any more.
        """
        found = referring_constraints(self._connection, self._found.side)
        if found:
            tables = ", ".join(dict.fromkeys(table for table, _ in found))
            drops = "; ".join(f"ALTER TABLE {table} DROP CONSTRAINT {name}" for table, name in found)
            raise SchemaMismatch(
                f"box {self._box.name}: {tables} refers to table {self._box.table} by a foreign key. New items will be in the "
                f"log, so rows that refer to them would be refused. First: {drops}"
            )

    def log_is_used(self) -> bool:
        """Whether the log has rows, so that it must not become one whose rows are moved away."""
        return bool(self._connection.execute(text(f"SELECT EXISTS (SELECT FROM {in_text(self._found.log)})")).scalar())

    def waits_in_log(self) -> bool:
        """Whether the log has rows that no delivery has passed."""
        return bool(self._connection.execute(text(self._texts.waiting().replace(":", "\\:"))).scalar())

    # ── the parts ────────────────────────────────────────────────────────────────────────────────────

    def _identity(self) -> list[str]:
        """The trigger deletes what it moves out of the log. Of a published table the server would refuse that, and with it every
        writer's transaction."""
        lacks_one = text(
            "SELECT EXISTS (SELECT FROM pg_publication WHERE pubupdate OR pubdelete) AND (to_regclass(:log) IS NULL OR EXISTS ("
            f"SELECT FROM pg_class WHERE oid IN ({with_partitions(':log')}) AND relreplident <> 'f'))"
        )
        lacks = self._connection.execute(lacks_one, {"log": self._found.log}).scalar()
        return [identifying(self._found.log)] if lacks else []

    def _columns(self) -> list[str]:
        if self._found.columns is not None:
            return self._found.columns
        dialect, columns = self._connection.dialect, self._table.columns
        own = [each.name for each in columns if each.computed is None and is_logged(each.name, self._box.type)]
        return [quoted(dialect, name) for name in own]

    def _mark(self, storage: Storage | None) -> list[str]:
        side = self._found.side
        return [] if side.recorded_storage is storage else [sizes.marking(self._connection, side, storage)]


def _limit(seconds: float) -> str:
    return f"SET LOCAL lock_timeout = '{round(seconds * 1000)}ms'"
