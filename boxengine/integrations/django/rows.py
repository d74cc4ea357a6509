"""The rows of a box's items, inserted through Django's ORM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import Any

from django.conf import settings as django_settings
from django.db import IntegrityError, connections, transaction
from django.db.models import CharField, DateTimeField, Func, TextField

from boxengine.adapters.sql.creating.size_in_force import QUESTIONS, SizeInForce
from boxengine.adapters.sql.waking.listen import CHANNEL
from boxengine.adapters.sql.waking.notifying import IN_TURN
from boxengine.adapters.sql.waking.telling import signals_of
from boxengine.adapters.system import SystemClock
from boxengine.adapters.telemetry.combined import CombinedTracer
from boxengine.adapters.telemetry.opentelemetry import OpenTelemetryTracer
from boxengine.app.boxes import Boxes
from boxengine.domain.box import Box, BoxType
from boxengine.domain.names import box_name
from boxengine.domain.new_values import ENGINE_OWNED, NO_LIMIT, TEXTS, check_values, name_events
from boxengine.engine.create import Creator
from boxengine.engine.observation import NullObserver
from boxengine.integrations.django import configuration
from boxengine.integrations.django.models import InboxItem, OutboxItem
from boxengine.ports import Attributes, Inserted


@cache
def creator(model: Any, alias: str) -> Creator:
    """What creates the items of a model in one database.

    Raises:
        UnknownBox: the configuration has no such box.
    """
    boxes = configuration.boxes(alias)
    pipeline = boxes.pipeline(box_name(model))
    clock = SystemClock()
    settings = boxes.resolved.settings
    return Creator(
        pipeline,
        DjangoRows(pipeline.box, model, boxes),
        middlewares=boxes.resolved.middlewares,
        observer=NullObserver(),
        tracer=CombinedTracer([OpenTelemetryTracer(clock=clock)]),
        clock=clock,
        codec=getattr(model, "__payload__", None),
        max_payload=settings.max_payload_of(settings.boxes[pipeline.box.name]),
    )


class UtcNow(Func):
    """The clock of MySQL and MariaDB in UTC, in which all moments of a box are stored there."""

    template = "UTC_TIMESTAMP(6)"
    output_field = DateTimeField()


class DjangoRows:
    """``Rows`` of one box through Django's ORM; the session is a database's alias."""

    def __init__(self, box: Box, model: type[OutboxItem | InboxItem], boxes: Boxes) -> None:
        self._box = box
        self._model = model
        self._boxes = boxes
        self._size = SizeInForce(box)
        fields = {field.attname: field for field in model._meta.concrete_fields}
        self._longest = {name: fields[name].max_length or NO_LIMIT for name in TEXTS if name in fields}
        self._named = type(fields.get("event_name")) in (CharField, TextField)
        self._columns = frozenset(fields.keys() - ENGINE_OWNED)
        # The uuid identifies a message of an inbox, too.
        self._identities = ("dedup_key", "uuid") if box.type is BoxType.INBOX else ("dedup_key",)

    @property
    def columns(self) -> frozenset[str]:
        return self._columns

    def insert(self, session: str, rows: Sequence[Attributes]) -> Inserted:
        # Before anything that raises could spoil the caller's transaction.
        if self._named:
            name_events(self._box.name, rows)
        # Without USE_TZ, Django's moments have no zone: they are in its TIME_ZONE.
        check_values(self._box.name, rows, longest=self._longest, zoneless=not django_settings.USE_TZ)
        # The wake-up and the rows become visible together, even if the caller has opened no transaction.
        with transaction.atomic(using=session, savepoint=False):
            self._size.demand(lambda: self._comment(session))
            inserted = self._insert_all(session, rows)
            self._wake(session, rows)
        return inserted

    def _insert_all(self, alias: str, rows: Sequence[Attributes]) -> Inserted:
        ids: list[int] = []
        known: set[int] = set()
        mysql = connections[alias].vendor == "mysql"
        # There the columns' own default is a moment in the session's zone, and all others are in UTC.
        defaults = {"created_at": UtcNow(), "updated_at": UtcNow()} if mysql else {}
        for keyed, part in groupby(rows, self._is_keyed):
            run = [self._model(**(defaults | row)) for row in part]
            if not keyed:
                self._insert_plain(alias, run)
                ids += [row.pk for row in run]
                continue
            for row in run:
                row_id, was_there = self._insert_keyed(alias, row)
                ids.append(row_id)
                if was_there:
                    known.add(row_id)
        return Inserted(ids, frozenset(known))

    def _insert_plain(self, alias: str, rows: Sequence[OutboxItem | InboxItem]) -> None:
        if connections[alias].features.can_return_rows_from_bulk_insert:
            self._model._base_manager.using(alias).bulk_create(rows)
            return
        # MySQL itself, unlike MariaDB, returns the id of one row only.
        for row in rows:
            row.save(force_insert=True, using=alias)

    def _is_keyed(self, row: Attributes) -> bool:
        return any(row.get(name) is not None for name in self._identities)

    def _insert_keyed(self, alias: str, row: OutboxItem | InboxItem) -> tuple[int, bool]:
        """The row's id, and whether it existed already; waits for a concurrent insert of the same row."""
        try:
            with transaction.atomic(using=alias):
                row.save(force_insert=True, using=alias)
        except IntegrityError:
            rows = self._model._base_manager.using(alias)
            if connections[alias].vendor == "mysql":
                # A plain read would not see the row under REPEATABLE READ, if the transaction's snapshot is older.
                rows = rows.select_for_update()
            for name in self._identities:
                found = rows.filter(**{name: getattr(row, name)}).first()
                if getattr(row, name) is not None and found is not None:
                    return int(found.pk), True
            raise
        return int(row.pk), False

    def _comment(self, alias: str) -> Any:
        """The table's comment, which holds the number of buckets in force."""
        database, name = connections[alias], self._model._meta.db_table
        question = QUESTIONS.get(database.vendor)
        if question is None:
            return None
        with database.cursor() as cursor:
            cursor.execute(
                question.replace(":name", "%s"),
                [database.ops.quote_name(name) if database.vendor == "postgresql" else name],
            )
            row = cursor.fetchone()
        return row[0] if row else None

    def _wake(self, alias: str, rows: Sequence[Attributes]) -> None:
        self._boxes.wake(
            signals_of(self._box, rows),
            notify_in_turn=lambda text: bool(self._ask(alias, IN_TURN, text)),
            notify=lambda text: self._ask(alias, "SELECT pg_notify(%s, %s)", CHANNEL, text),
            after_commit=lambda send: transaction.on_commit(send, using=alias, robust=True),
        )

    def _ask(self, alias: str, question: str, *values: str) -> Any:
        with connections[alias].cursor() as cursor:
            cursor.execute(question, values)
            return cursor.fetchone()[0]
