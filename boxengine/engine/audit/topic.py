"""The audit of a topic: its messages, compared with the box's table.

The rows are read first, then the topic up to its end at that moment: the message of a delivered row was acknowledged before,
so it must be among those read. A message that seems to lack its row is looked up in the table again before it is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import REPLAY_OF, Status, rfc3339
from boxengine.domain.message import ReceivedMessage
from boxengine.engine.audit.findings import Finding, Kind, Summary
from boxengine.engine.audit.table import Progress, kept_from
from boxengine.engine.delivering.batches.order import may_wait
from boxengine.ports import ItemFilter, ItemRow, ItemsStore
from boxengine.ports.people.audit import (
    AuditStore,
    FirstSending,
    Matching,
    Mismatch,
    RowMark,
    RowTrace,
    TopicLog,
    TopicLosses,
    Trace,
)

LOOKED_UP_AT_ONCE = 500
LONGEST_NUMBER = 19
"""An id has fewer digits, so that it always fits a 64-bit number."""
T = TypeVar("T")


class TopicAudit:
    """The checks that compare a box's table with its topics."""

    def __init__(
        self,
        box: Box,
        *,
        items: ItemsStore,
        rows: AuditStore,
        log: TopicLog,
        matching: Matching,
        event_names: frozenset[str] | None = None,
        since: datetime | None = None,
    ) -> None:
        """Args:
        event_names: the event names of the items that go to these topics; None: all items do.
        since: only items created since this moment, which has a time zone, are checked.
        """
        self._box = box
        self._items = items
        self._rows = rows
        self._log = log
        self._matching = matching
        self._event_names = event_names
        self._since = since
        self._partitions: dict[tuple[str, int], int] = {}
        self._topics: dict[str, int] = {}

    def findings(self, summary: Summary, progress: Progress) -> Iterator[Finding]:
        """Runs only as far as the iterator is consumed, and keeps ``summary`` up to date.

        Raises:
            StoreUnavailable, SourceUnavailable: the database or the broker does not answer.
            BoxError: the topic does not exist.
        """
        seen = 0
        for page in self._rows.by_id(self._box, since=self._since):
            self._matching.add_rows(map(self._row_trace, page))
            seen += len(page)
            progress("rows to compare", seen, None)
        seen, total = 0, self._log.measure()
        for messages in self._log.read():
            self._matching.add_messages(self._traces(messages, summary))
            seen += len(messages)
            progress("messages", seen, total)
        progress("rows and messages, compared", 0, None)
        losses = self._log.losses()
        summary.notes += self._notes(losses)
        yield from self._mismatches(losses)
        progress("the order of messages", 0, None)
        yield from self._inversions(losses)

    # ── what goes in ─────────────────────────────────────────────────────────────────────────────────

    def _row_trace(self, row: RowMark) -> RowTrace:
        awaited = (
            row.status == Status.DELIVERED
            and row.own_identity
            and (self._event_names is None or row.event_name in self._event_names)
        )
        return RowTrace(row.uuid, row.id, awaited, int(row.created_at.replace(tzinfo=UTC).timestamp()))

    def _traces(self, messages: Sequence[ReceivedMessage], summary: Summary) -> Iterator[Trace]:
        again = self._sent_again(messages)
        for message in messages:
            headers = dict(message.headers)
            uuid = headers.get("Idempotency-Key")
            if uuid is None or _text(headers.get("Outbox-Name")) != self._box.name:
                summary.foreign += 1
                continue
            created = _created(message, headers)
            if self._since is not None and created < self._since:
                continue
            summary.messages += 1
            place = (message.topic, message.partition)
            trace = Trace(
                uuid=_text(uuid),
                id=_number(headers.get("Sequence-ID")),
                key=message.key,
                partition=self._partitions.setdefault(place, len(self._partitions)),
                offset=message.offset,
                created=int(created.timestamp()),
                topic=self._topics.setdefault(message.topic, len(self._topics)),
            )
            if REPLAY_OF in headers:
                original = _text(headers[REPLAY_OF])
                yield trace._replace(uuid=original, repetition=True)
                if original in (trace.uuid, _uuid_of(again, trace.id)):
                    continue
            yield trace

    def _sent_again(self, messages: Iterable[ReceivedMessage]) -> Mapping[int, ItemRow]:
        """The rows that replays have sent, copies among them."""
        replayed = [dict(each.headers) for each in messages if any(name == REPLAY_OF for name, _ in each.headers)]
        return self._look_up(_number(headers.get("Sequence-ID")) for headers in replayed)

    def _notes(self, losses: TopicLosses) -> Iterator[str]:
        if losses.compacted:
            yield "the topic is compacted: that an item's message is missing could not be judged"
        elif losses.complete_from is not None:
            yield f"the broker has deleted old messages: items created before {rfc3339(losses.complete_from)} were not compared"

    # ── what comes out ───────────────────────────────────────────────────────────────────────────────

    def _mismatches(self, losses: TopicLosses) -> Iterator[Finding]:
        kept = kept_from(self._box, self._rows.now()).timestamp()
        complete = 0.0 if losses.complete_from is None else losses.complete_from.timestamp()
        for chunk in _chunks(self._matching.mismatches()):
            rowless = [each for each in chunk if each.row_id is None and each.messages and each.created >= kept]
            rows = self._look_up(each.message_id for each in rowless)
            # Items created while the rows were read now have a row.
            orphans = {each.uuid for each in rowless if _uuid_of(rows, each.message_id) != each.uuid}
            for each in chunk:
                if each.messages > each.topics:
                    yield self._doubled(each)
                if each.uuid in orphans:
                    yield self._orphaned(each)
                if each.awaited and each.offset is None and not losses.compacted and each.created >= complete:
                    yield _missing(each, rows=self._look_up([each.row_id]))

    def _inversions(self, losses: TopicLosses) -> Iterator[Finding]:
        for chunk in _chunks(self._overtaken()):
            rows = self._look_up(each.id for pair in chunk for each in pair)
            for late, first in chunk:
                if self._promised(rows.get(late.id), rows.get(first.id), losses):
                    yield self._inverted(late, first)

    def _overtaken(self) -> Iterator[tuple[FirstSending, FirstSending]]:
        """Items whose first message comes after that of a later item of their key, each with the first such later item."""
        first: FirstSending | None = None
        for sending in self._matching.first_sendings():
            if first is None or (sending.key, sending.partition) != (first.key, first.partition):
                first = sending
            elif first.offset < sending.offset:
                yield sending, first
            else:
                first = sending

    def _promised(self, late: ItemRow | None, first: ItemRow | None, losses: TopicLosses) -> bool:
        """Whether the box promises to deliver ``late`` before ``first``."""
        if late is not None and first is not None and late.event_key != first.event_key:
            return False  # two event keys with the same message key
        if losses.complete_from is not None and (
            late is None or not isinstance(late.created_at, datetime) or late.created_at < losses.complete_from
        ):
            return False  # what is now first in the topic may be a repetition
        if self._box.strict_order is not StrictOrder.NONE:
            return True
        return late is not None and not may_wait(late)

    def _look_up(self, ids: Iterable[int | None]) -> Mapping[int, ItemRow]:
        wanted = tuple({each for each in ids if each is not None})
        if not wanted:
            return {}
        return {
            row.id: row for row in self._items.page(self._box, ItemFilter(ids=wanted), after=None, limit=len(wanted))
        }

    # ── in words ─────────────────────────────────────────────────────────────────────────────────────

    def _doubled(self, mismatch: Mismatch) -> Finding:
        where = self._place(mismatch.partition, mismatch.offset)
        within = f" in {mismatch.topics} topics" if mismatch.topics > 1 else ""
        detail = f"{mismatch.messages} messages{within} carry its Idempotency-Key {mismatch.uuid}, the last at {where}"
        return Finding(Kind.DUPLICATE, _first(mismatch.row_id, mismatch.message_id), _key(mismatch.key), detail)

    def _orphaned(self, mismatch: Mismatch) -> Finding:
        where = self._place(mismatch.partition, mismatch.offset)
        detail = f"its message at {where} has no row, and retention cannot have deleted it yet"
        return Finding(Kind.ORPHANED, mismatch.message_id, _key(mismatch.key), detail)

    def _inverted(self, late: FirstSending, first: FirstSending) -> Finding:
        where = self._place(late.partition, late.offset)
        detail = f"first comes at {where}, after item {first.id} of its key at offset {first.offset}"
        return Finding(Kind.INVERSION, late.id, _key(late.key), detail)

    def _place(self, number: int | None, offset: int | None) -> str:
        topic, partition = list(self._partitions)[number or 0]
        return f"{topic}, partition {partition}, offset {offset}"


def _missing(mismatch: Mismatch, *, rows: Mapping[int, ItemRow]) -> Finding:
    row = next(iter(rows.values()), None)
    detail = f"counts as delivered, and no message carries its Idempotency-Key {mismatch.uuid}"
    return Finding(Kind.MISSING, mismatch.row_id, None if row is None else row.event_key, detail)


def _uuid_of(rows: Mapping[int, ItemRow], item_id: int | None) -> str | None:
    row = None if item_id is None else rows.get(item_id)
    return None if row is None else row.uuid


def _first(*ids: int | None) -> int | None:
    return next((each for each in ids if each is not None), None)


def _key(key: bytes | None) -> str | None:
    return None if key is None else key.decode(errors="replace")


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() and len(value) < LONGEST_NUMBER else None


def _created(message: ReceivedMessage, headers: Mapping[str, bytes | None]) -> datetime:
    """When its item was created, as far as the message shows."""
    try:
        moment = datetime.fromisoformat(_text(headers.get("Created-At")))
    except ValueError:
        return message.timestamp or datetime.fromtimestamp(0, UTC)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, LOOKED_UP_AT_ONCE)):
        yield chunk
