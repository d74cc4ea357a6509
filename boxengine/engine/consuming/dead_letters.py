"""Stores messages that cannot become items of their box: in the box as failed rows, or in another box."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from types import MappingProxyType
from typing import Any

from boxengine.domain.box import Box
from boxengine.domain.masking import masked_text
from boxengine.domain.message import ReceivedMessage, remains, without_nul
from boxengine.engine.attempt import LONGEST_REASON, text_of
from boxengine.engine.consuming.rules import NAMES, Rules, ruled_remains
from boxengine.errors import InvalidItem
from boxengine.ports import CreateBatch, Inbox, InboxTransaction


class FailedRows:
    """``DeadLetters`` in the box itself, as failed rows: the default."""

    def __init__(
        self,
        box: Box,
        *,
        create_batch: CreateBatch,
        unguarded: CreateBatch,
        inbox: Inbox,
        rules: Rules = MappingProxyType({}),
    ) -> None:
        """Args:
        unguarded: the same without the create middlewares.
        rules: those of the box's source.
        """
        self._box = box
        # A create middleware that refuses the message refuses its row, too. Others may set columns that the table demands.
        self._ways = (create_batch, unguarded)
        self._inbox = inbox
        self._rules = rules

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> bool:
        *others, last = product(self._forms(message), self._ways)
        for attributes, create_batch in others:
            with suppress(InvalidItem):
                return self._store(transaction, create_batch, attributes, reason)
        attributes, create_batch = last
        return self._store(transaction, create_batch, attributes, reason)

    def _forms(self, message: ReceivedMessage) -> Iterator[dict[str, Any]]:
        """What may be kept of it, the most first: what a rule says may be what the table refuses.

        The key matters, also of a failed row: with strict order it holds back the others of its key.
        """
        columns, plain, said = self._inbox.columns(self._box), remains(message), ruled_remains(message, self._rules)
        names = {name: value for name, value in said.items() if name in NAMES}
        yield only(columns, plain | said)
        if said.keys() - NAMES:
            yield only(columns, plain | names)
        if said:
            yield only(columns, plain)

    def _placed(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """With some bucket, if the box's partition strategy has none for the key: the row waits for people, not for a worker."""
        try:
            bucket = self._box.partition_strategy(attributes["event_key"], self._box.bucket_size)
        except Exception:  # it is users' code, and this may be why the message was refused
            bucket = -1
        return attributes if bucket in self._box.buckets else {**attributes, "bucket": 0}

    def _store(
        self, transaction: InboxTransaction, create_batch: CreateBatch, attributes: dict[str, Any], reason: str
    ) -> bool:
        with transaction.savepoint():
            known: set[int] = set()
            for item_id in create_batch(transaction.session, [self._placed(attributes)], known=known):
                # A known row belongs to an earlier message with the same Idempotency-Key, which may have been valid.
                if item_id not in known:
                    transaction.reject(item_id, f"not processed: the message could not be stored as it is: {reason}")
        return not known


class OtherBox:
    """``DeadLetters`` in a box of their own, in the same transaction, with the reason in their headers."""

    def __init__(self, box: Box, *, create_batch: CreateBatch, inbox: Inbox) -> None:
        self._box = box
        self._create_batch = create_batch
        self._inbox = inbox

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> bool:
        attributes = only(self._inbox.columns(self._box), remains(message))
        if "options" in attributes:
            options = attributes["options"]
            headers = options["headers"] | dict(reason_headers(message, reason))
            attributes["options"] = options | {"headers": headers}
        with transaction.savepoint():
            known: set[int] = set()
            self._create_batch(transaction.session, [attributes], known=known)
        return not known


def reason_in(refusal: InvalidItem) -> str:
    """Why a message was refused, as a text that every row and every topic takes.

    A rule's error may quote the message: NUL, half a surrogate pair, or more than the largest message could hold.
    """
    said = without_nul(masked_text(text_of(refusal)[:LONGEST_REASON]))
    return said.encode(errors="replace").decode()


def reason_headers(message: ReceivedMessage, reason: str) -> list[tuple[str, str]]:
    """The headers that a dead letter has in addition to the message's own."""
    return [
        ("Dead-Letter-Reason", reason),
        ("Dead-Letter-Topic", message.topic),
        ("Dead-Letter-Partition", str(message.partition)),
        ("Dead-Letter-Offset", str(message.offset)),
    ]


def only(columns: frozenset[str], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that have a column. The payload has one in every table, though its name differs."""
    return {name: value for name, value in attributes.items() if name in columns or name == "payload"}
