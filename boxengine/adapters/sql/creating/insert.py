"""Inserts rows through the caller's own transaction: a ``Session``, a ``Connection``, or what ``run_sync`` passes on.

The same call wakes the poller. On PostgreSQL the statement itself calls ``pg_notify``; the database sends the notification
once per transaction, and only if it commits (``eased_notify`` and ``notifying`` describe when another thread does that instead).
On other databases the wake-up goes through Redis after the commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Integer, MetaData, Table, inspect
from sqlalchemy.exc import StatementError

from boxengine.adapters.sql.creating.choosing import inserts_for
from boxengine.adapters.sql.creating.known_rows import KnownRows
from boxengine.adapters.sql.creating.size_in_force import SizeInForce, comment
from boxengine.adapters.sql.dialects.inserts import Inserts, runs
from boxengine.adapters.sql.log.tables import lengths_in_log, log_table
from boxengine.adapters.sql.sessions.callers_connection import bind_arguments, callers_connection
from boxengine.adapters.sql.shape.adapting import adapted, mapped
from boxengine.adapters.sql.shape.columns import length_of, names_events_by_texts, takes_one_value
from boxengine.adapters.sql.shape.models import box_table, own_columns
from boxengine.adapters.sql.waking.after_commit import send_after_commit
from boxengine.adapters.sql.waking.eased_notify import EasedNotify
from boxengine.adapters.sql.waking.notifying import IN_TRANSACTION, wake, wake_out_of_turn
from boxengine.adapters.sql.waking.telling import signal_of, signals_of
from boxengine.domain.box import Box, BoxType, Storage
from boxengine.domain.new_values import (
    ENGINE_OWNED,
    NO_LIMIT,
    TEXTS,
    check_names,
    check_single_values,
    check_values,
    name_events,
    not_json,
)
from boxengine.errors import InvalidItem
from boxengine.ports import Attributes, Inserted, Signal

_REFUSED_JSON = re.compile(r"type json|Unicode escape|\.options` failed|Invalid JSON")
"""What servers say of NaN, and PostgreSQL of half a surrogate pair and, as the second one, of NUL; then MariaDB and MySQL."""


class SqlRows:
    """``Rows`` of one box."""

    def __init__(
        self,
        box: Box,
        model: type | None = None,
        *,
        notify: bool = False,
        signal: Callable[[list[Signal]], None] | None = None,
        eased: EasedNotify | None = None,
    ) -> None:
        """Args:
        notify: wakes the poller by the database's own notification, if the database has one.
        eased: decides which transactions notify by themselves, and who does it for the others; None: all do.
        signal: called after the commit if the database has no notification of its own.
        """
        self._box = box
        self._size = SizeInForce(box)
        self._notify = notify
        self._signal = signal
        self._eased = eased
        table: Table = model.__table__ if model is not None else box_table(box, MetaData())  # type: ignore[attr-defined]
        self._bind = bind_arguments(model, table)
        self._single = [name for name in own_columns(table) if takes_one_value(table.columns[name].type)]
        """The model's own columns, as far as they take single values."""
        self._logged = logged = box.storage is Storage.LOG
        self._marked = table
        """Its comment holds the number of buckets in force; a log's own has none."""
        # In an inbox an item that stepped aside, or that was there before the log was, is known too.
        self._aside = table if logged and box.type is BoxType.INBOX else None
        self._use(log_table(table, box.type) if logged else table)
        self._modelled = model is not None
        # boxengine made a log box's tables itself, so they need no adapting.
        self._adapted = logged

    def _use(self, table: Table) -> None:
        """Inserts into this table from now on. Computes once what every row needs to know about it."""
        self._table = table
        self._columns = frozenset(table.columns.keys()) - ENGINE_OWNED
        self._known = KnownRows(self._box, table, aside=self._aside)
        self._numeric = isinstance(table.c.event_key.type, Integer)
        self._longest: Mapping[str, int] = {
            name: length_of(table.columns[name].type) for name in TEXTS if name in table.columns
        }
        self._named = names_events_by_texts(table)
        self._inserts: dict[str, Inserts] = {}
        """Keyed by the name of the database's dialect."""

    def _into(self, connection: Connection) -> Inserts:
        """The statements for the database of this connection."""
        dialect = connection.dialect.name
        found = self._inserts.get(dialect)
        if found is None:
            inbox = self._box.type is BoxType.INBOX
            found = inserts_for(dialect, self._table, identities=self._known.identities, inbox=inbox)
            self._inserts[dialect] = found
        return found

    @property
    def columns(self) -> frozenset[str]:
        return self._columns

    def insert(self, session: Any, rows: Sequence[Attributes]) -> Inserted:
        connection = callers_connection(session, self._bind)
        self._check(connection, rows)
        if not self._size.agreed:
            self._size.demand(lambda: comment(connection, self._marked))
        if not self._adapted:
            self._use(self._adapt(connection))
            self._adapted = True
            for position, row in enumerate(rows):
                check_names(self._box, row, self._columns, position)
            if not self._modelled:
                # Whoever made the table may have given its columns other lengths than boxengine does.
                found = self._lengths_in(connection)
                self._longest = {name: min(length, found[name]) for name, length in self._longest.items()}
                self._check(connection, rows)
        if self._numeric:
            rows = [{**row, "event_key": self._number(row["event_key"])} for row in rows]
        keyed = any(map(self._known.may_know, rows))
        try:
            return self._insert_and_wake(connection, rows, keyed=keyed)
        except (StatementError, TypeError, ValueError, RecursionError) as error:
            # Not sooner: an engine's json_serializer may store more than Python's json does.
            self._demand_json_options(rows, error)
            raise

    def _adapt(self, connection: Connection) -> Table:
        """The table as the database has it. A user's class is believed, except about zones."""
        if self._modelled:
            return mapped(self._table, connection)
        return adapted(self._table, self._box, connection)

    def _check(self, connection: Connection, rows: Sequence[Attributes]) -> None:
        """See ``name_events``, ``check_values`` and ``check_single_values``."""

        def look() -> Mapping[str, int]:
            self._longest = self._lengths_in(connection)
            return self._longest

        if self._named:
            name_events(self._box.name, rows)
        check_values(self._box.name, rows, longest=self._longest, look=look)
        if self._single:
            check_single_values(self._box.name, rows, self._single)

    def _lengths_in(self, connection: Connection) -> dict[str, int]:
        """How many characters the database really takes: the table's owner may have widened its columns.

        Where there was no limit, there is none: the column may hold another text than the one that was given.
        """
        if self._logged:
            found = lengths_in_log(connection, self._table)
        else:
            columns = inspect(connection).get_columns(self._table.name, schema=self._table.schema)
            found = {column["name"]: length_of(column["type"]) for column in columns}
        return {
            name: NO_LIMIT if length == NO_LIMIT else found.get(self._table.columns[name].name, NO_LIMIT)
            for name, length in self._longest.items()
        }

    def _number(self, key: str) -> int:
        try:
            return int(key)
        except ValueError:
            message = f"event_key {key!r} is no number, and the table {self._table.fullname} stores its keys as numbers"
            raise InvalidItem(f"box {self._box.name}: {message}") from None

    def _demand_json_options(self, rows: Sequence[Attributes], error: Exception) -> None:
        """Says which part of which options cannot be JSON, if that is what the error is about."""
        cause = getattr(error, "orig", None) or error
        if not isinstance(cause, TypeError | ValueError | RecursionError) and not _REFUSED_JSON.search(str(cause)):
            return
        from boxengine.domain.json_values import json_text  # noqa: PLC0415 - hardly a process needs it

        for position, row in enumerate(rows):
            try:
                json_text(row.get("options"))
            except ValueError as refusal:
                raise not_json(self._box.name, position, str(refusal)) from error

    # ── the statements ───────────────────────────────────────────────────────────────────────────────

    def _insert_and_wake(self, connection: Connection, rows: Sequence[Attributes], *, keyed: bool) -> Inserted:
        inserts = self._into(connection)
        if not (self._notify and inserts.notifies):
            inserted = self._insert_rows(connection, rows, keyed=keyed)
            if self._signal is not None:
                send_after_commit(connection, signals_of(self._box, rows), self._signal)
            return inserted
        way = IN_TRANSACTION if self._eased is None else self._eased.way(connection)
        if len(rows) > 1 or keyed or not way.in_transaction:
            inserted = self._insert_rows(connection, rows, keyed=keyed)
            wake(connection, signals_of(self._box, rows), way)
            return inserted
        # The INSERT itself notifies, which spares the transaction a round trip.
        signal = signal_of(self._box, rows[0])
        row_id, told = inserts.one_told(connection, self._lone(connection, rows[0]), signal.encode())
        if not told:
            wake_out_of_turn(connection, [signal], way)
        return Inserted([row_id])

    def _lone(self, _connection: Connection, row: Attributes) -> Attributes:
        """A row by itself that the table cannot have yet, complete."""
        return row

    def _insert_rows(self, connection: Connection, rows: Sequence[Attributes], *, keyed: bool) -> Inserted:
        return self._insert_mixed(connection, rows) if keyed else self._insert_new(connection, rows)

    def _insert_new(self, connection: Connection, rows: Sequence[Attributes]) -> Inserted:
        inserts = self._into(connection)
        if len(rows) == 1:
            return Inserted([inserts.one(connection, rows[0])])
        return Inserted([row_id for run in runs(rows) for row_id in inserts.run(connection, run)])

    def _insert_mixed(self, connection: Connection, rows: Sequence[Attributes]) -> Inserted:
        """Inserts rows, some of which the table may already have, and keeps their order."""
        inserts = self._into(connection)
        ids: list[int] = []
        known: set[int] = set()
        for keyed, part in groupby(rows, self._known.may_know):
            run = list(part)
            inserted = self._known.insert(connection, inserts, run) if keyed else self._insert_new(connection, run)
            # A later part finds rows that an earlier part has just inserted; these do not count as known before.
            known |= inserted.known.difference(ids)
            ids += inserted.ids
        return Inserted(ids, frozenset(known))
