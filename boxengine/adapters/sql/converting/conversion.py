"""The commands of a conversion. Each may be given at any time, and does what is left to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Engine, Table

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.connecting.limiting import unlimited
from boxengine.adapters.sql.converting.patience import Patience
from boxengine.adapters.sql.converting.steps import Steps
from boxengine.adapters.sql.dialects.postgresql import lock_space
from boxengine.adapters.sql.log.foreign import is_foreign
from boxengine.adapters.sql.log.stage import Stage, Standing, standing_of
from boxengine.adapters.sql.log.tables import missing_positions, reflect_log
from boxengine.adapters.sql.log.under_way import waiting_for_deliveries
from boxengine.adapters.sql.shape.tables import for_driver
from boxengine.domain.box import Box, BoxType, Storage
from boxengine.domain.words import plural
from boxengine.errors import BadUsage, SchemaMismatch, StoreUnavailable

_NO_BUCKET = -1
"""Deliveries lock the buckets, from 0 on."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """One transaction of a conversion."""

    connection: Connection
    found: Standing
    steps: Steps
    run: Callable[[Sequence[str]], int]
    """Runs the statements, and returns what the last of them returned; 0 for nothing."""


class Conversion:
    """Takes one outbox box from stage to stage."""

    def __init__(
        self, engine: Engine, box: Box, table: Table, patience: Patience, *, show: Callable[[str], object] | None = None
    ) -> None:
        """Connects to nothing yet.

        Args:
            box: as configured, with either storage, and not refused (``refuse``).
            table: what its table is made of: that of its model, if it has one.
            show: takes each statement instead of the database, which stays as it is; None: they are run.
        """
        self._engine = engine
        self._box = replace(box, storage=Storage.LOG)
        self._table = table
        self._patience = patience
        self._show = show

    def stage(self) -> Stage:
        """Where the box is.

        Raises:
            SchemaMismatch: it has no table, or its tables cannot be those of a log.
        """
        with translated(self._engine), self._engine.connect() as connection:
            return standing_of(connection, self._box).stage

    # ── table to log ─────────────────────────────────────────────────────────────────────────────────

    def prepare(self) -> None:
        """Makes the log. What is written to it is moved into the table.

        A log to which somebody writes already stays as it is.

        Raises:
            SchemaMismatch: the table cannot take items out of a log, has items that a log has no place for, or is referred to.
            StoreConflict: see ``Patience.insist``.
        """
        self._insist(self._prepare)

    def _prepare(self) -> None:
        with self._turn() as turn:
            if turn.found.stage is Stage.BOTH:
                turn.run(turn.steps.identify())  # a publication may have come in between
                return
            if turn.found.stage is Stage.LOG:
                turn.run(turn.steps.lock_log())
                if turn.found.catches or turn.steps.log_is_used():
                    return
            turn.steps.refuse_items()
            turn.steps.refuse_references()
            turn.run(turn.steps.make_log())
            if self._show is None:
                standing_of(turn.connection, self._box)  # refuses what cannot take items out of this log

    def finish_to_log(self) -> None:
        """Has all items written to the log. Those in the table go out first.

        Raises:
            SchemaMismatch: there is no log, it has items that were not delivered, or other tables refer to items.
            StoreConflict: see ``Patience.insist``.
        """
        with self._turn() as turn:  # beforehand: it reads all of the log
            if turn.found.stage is Stage.BOTH:
                deliver = "repeat this once a worker with storage: log has delivered them"
                self._refuse_waiting(turn, f"they would be skipped; {deliver}")
        self._insist(self._switch_to_log)

    def _switch_to_log(self) -> None:
        with self._turn() as turn:
            if turn.found.stage is Stage.TABLE:
                raise SchemaMismatch(f"box {self._box.name}: it has no log yet: first {self._command(Storage.LOG)}")
            if turn.found.stage is Stage.BOTH or not turn.found.catches:
                turn.steps.refuse_references()
                turn.run(turn.steps.switch_to_log())

    # ── log to table ─────────────────────────────────────────────────────────────────────────────────

    def back(self) -> None:
        """Copies what waits in the log into the table, and has all items written there.

        Raises:
            SchemaMismatch: buckets have no position.
            StoreUnavailable: the positions mean nothing on this server.
            StoreConflict: see ``Patience.insist``.
            DeliveryUnderWay: a delivery did not end in time.
        """
        self._insist(self._identify, readers=True)
        self._insist(self._switch_to_table)

    def _identify(self) -> None:
        with self._turn() as turn:
            if turn.found.stage is Stage.LOG:
                turn.run(turn.steps.identify())

    def _switch_to_table(self) -> None:
        if self._show is None:
            for bucket in self._box.buckets:
                self._copy(bucket)
        with self._turn() as turn:
            if turn.found.stage is not Stage.LOG:
                return
            self._hold(turn, self._box.buckets)
            turn.run(turn.steps.lock_both())
            turn.run(turn.steps.copy())
            turn.run(turn.steps.switch_to_table())

    def _copy(self, bucket: int) -> None:
        """Copies most of the log beforehand, so that little is left to copy while nobody can write."""
        with self._turn() as turn:
            if turn.found.stage is not Stage.LOG:
                return
            self._refuse_positions(turn)
            self._hold(turn, [bucket])
            copied = turn.run(turn.steps.copy(bucket))
        if copied:
            self._patience.tell(f"bucket {bucket}: {plural(copied, 'item')} copied into the table")

    def finish_to_table(self) -> None:
        """Drops the log, and what moved items between log and table.

        Raises:
            SchemaMismatch: items are written to the log, or some that it has were not delivered.
            StoreConflict: see ``Patience.insist``.
        """
        self._insist(self._drop_log, readers=True)
        self._insist(self._drop_trigger, readers=True)

    def _drop_log(self) -> None:
        with self._turn() as turn:
            name = self._box.name
            if turn.found.stage is Stage.LOG:
                raise SchemaMismatch(
                    f"box {name}: its items are written to the log: first {self._command(Storage.TABLE)}"
                )
            if turn.found.stage is Stage.BOTH:
                self._refuse_waiting(turn, f"nothing was dropped; look at table {turn.found.log}")
                turn.run(turn.steps.drop_log())

    def _drop_trigger(self) -> None:
        with self._turn() as turn:
            if turn.found.has_trigger:
                turn.run(turn.steps.drop_trigger())

    # ── the parts ────────────────────────────────────────────────────────────────────────────────────

    def _insist(self, step: Callable[[], None], *, readers: bool = False) -> None:
        with translated(self._engine), self._engine.connect() as connection:
            found = standing_of(connection, self._box)
        self._patience.insist(self._engine, [found.side.name, found.log], step, readers=readers)

    def _hold(self, turn: _Turn, buckets: Iterable[int]) -> None:
        with waiting_for_deliveries(self._box):
            turn.run(turn.steps.hold(buckets))

    @contextmanager
    def _turn(self) -> Iterator[_Turn]:
        with translated(self._engine), self._engine.begin() as connection:
            shown: list[str] = []

            def run(statements: Sequence[str]) -> int:
                returned: Any = 0
                for sql in statements:
                    if self._show is not None:
                        shown.append(sql)
                        continue
                    result = connection.exec_driver_sql(for_driver(sql))
                    returned = result.scalar() if result.returns_rows else 0
                return int(returned or 0)

            if self._show is None:
                unlimited(connection)
                # Two commands at once: the second looks when the first is done.
                side = standing_of(connection, self._box).side
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({lock_space(side)}, {_NO_BUCKET})")
            found = standing_of(connection, self._box)
            # Its number of buckets would be recorded, and be that of the positions.
            found.side.refuse_another_size()
            steps = Steps(connection, found, self._table, lock_timeout=self._patience.lock_timeout)
            yield _Turn(connection, found, steps, run)
            if self._show is not None and shown:
                for sql in ("BEGIN", *shown, "COMMIT"):
                    self._show(sql)

    def _refuse_waiting(self, turn: _Turn, what_then: str) -> None:
        if turn.steps.waits_in_log():
            raise SchemaMismatch(
                f"box {self._box.name}: its log has items that were not delivered, in buckets without a position or written "
                f"past its triggers: {what_then}"
            )

    def _refuse_positions(self, turn: _Turn) -> None:
        name = self._box.name
        found = reflect_log(turn.connection, turn.found.side)
        if missing := missing_positions(turn.connection, found, self._box.buckets):
            raise SchemaMismatch(
                f"box {name}: no position for {plural(missing, 'bucket')}; make it with: boxengine db create"
            )
        if is_foreign(turn.connection, found):
            raise StoreUnavailable(
                f"box {name}: its positions are in the numbers of another server's transactions; first: boxengine db reposition "
                + name
            )

    def _command(self, storage: Storage) -> str:
        return f"boxengine db convert {self._box.name} --to {storage.value}"


def refuse(box: Box) -> None:
    """Raises:
    BadUsage: the box has what only one of the two storages can do.
    """
    reasons = {
        "it is an inbox, where a message that comes twice might be known in neither table meanwhile": box.type
        is BoxType.INBOX,
        "it has sequence, and a log has no place for the numbers": box.sequence,
        "it has subscriptions, and a row of a table is delivered once": bool(box.subscriptions or box.subscription),
    }
    for reason, applies in reasons.items():
        if applies:
            raise BadUsage(f"box {box.name} cannot be converted: {reason}")
