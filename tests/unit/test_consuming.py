"""The consumer's decisions, without any server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.source import MemorySource
from boxengine.app.receiving.consuming import TURN_LIMIT
from boxengine.domain.box import Box, BoxType
from boxengine.domain.message import ReceivedMessage
from boxengine.engine.attempt import LONGEST_REASON
from boxengine.engine.consuming.loop import LAG_EVERY, ConsumeLimits, Consumer
from boxengine.engine.consuming.repetitions import TELL_EVERY, Repetitions
from boxengine.engine.consuming.stopped import LONGEST_WAIT, SHARE
from boxengine.engine.running.outages import Outages
from boxengine.errors import GraveUnavailable, InvalidItem, NotPermitted, StoreConflict, StoreUnavailable
from boxengine.ports import Consumed, InboxTransaction, TopicPartition
from boxengine.ports.events import Event, Lagging, MessagesStored, OutageBegan, OutageEnded, OutageLasts

BOX = Box(name="order_inbox_item", type=BoxType.INBOX, table="order_inbox_items")


def message(offset: int, *, partition: int = 0, value: str = "good") -> ReceivedMessage:
    return ReceivedMessage("orders", partition, offset, b"7", value.encode())


class Counts:
    """What the consumer tells."""

    def __init__(self) -> None:
        self.consumed_batches: list[dict[TopicPartition, Consumed]] = []
        self.lags: list[dict[TopicPartition, int]] = []
        self.outages: list[tuple[str, str]] = []
        self.recovered_from: list[str] = []
        self.lasting: list[tuple[str, float]] = []

    def see(self, event: Event) -> None:
        match event:
            case MessagesStored():
                self.consumed_batches.append(dict(event.counts))
            case OutageBegan():
                self.outages.append((event.what, event.reason))
            case OutageEnded():
                self.recovered_from.append(event.what)
            case OutageLasts():
                self.lasting.append((event.what, event.seconds))
            case Lagging():
                self.lags.append(dict(event.lags))
            case _:
                pass


class World:
    """An inbox and dead letters in lists, with transactions that can be undone; the message ``bad`` is refused."""

    def __init__(
        self,
        *messages: ReceivedMessage,
        graves: bool = True,
        batch_size: int = 100,
        rules: Mapping[str, Callable[[ReceivedMessage], Any]] | None = None,
        box: Box = BOX,
        outages: Outages | None = None,
    ) -> None:
        self.session: Any = self
        self.stored: list[str] = []
        self.dead: list[str] = []
        self.told: list[str] = []
        self.calls: list[int] = []
        self.failing: list[Exception] = []
        self.former: dict[str, int] = {}
        """Offsets of rows that an earlier version stored, by their key."""
        self.looks: list[int] = []
        """How many keys were looked up each time."""
        self.payloads: dict[str, bytes] = {}
        self.compared: list[int] = []
        """How many rows were read for their payload each time."""
        self.refusing: set[str] = set()
        """Places of messages that the dead letters do not take now."""
        self.seconds_to_refuse = 2.0
        self.refusal = "refused"
        """Why the message ``bad`` is refused."""
        self.clock = ManualClock()
        self.observer = Counts()
        self._graves = graves
        self.source = MemorySource(messages)
        self.consumer = Consumer(
            box,
            self.source,
            inbox=self,
            create_batch=self.create_batch,
            dead_letters=self,
            outages=outages or Outages(observer=self.observer, error_tracker=self.tell, clock=self.clock),
            error_tracker=self.tell,
            observer=self.observer,
            clock=self.clock,
            limits=ConsumeLimits(batch_size=batch_size),
            rules=rules,
            repetitions=Repetitions(BOX, error_tracker=self.tell, clock=self.clock),
        )

    def columns(self, box: Box) -> frozenset[str]:
        return frozenset({"dedup_key", "event_key", "payload"})

    @contextmanager
    def transaction(self, box: Box) -> Iterator[InboxTransaction]:
        before = list(self.stored), list(self.dead)
        try:
            yield self
            self._commit()
        except BaseException:
            self.stored, self.dead = before
            raise

    def _commit(self) -> None:
        if self.failing:
            raise self.failing.pop()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        before = list(self.stored)
        try:
            yield
        except BaseException:
            self.stored = before
            raise

    def reject(self, item_id: int, reason: str) -> None:
        raise AssertionError

    def stored_options(self, dedup_keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        self.looks.append(len(dedup_keys))
        return {key: {"kafka": {"offset": self.former[key]}} for key in dedup_keys if key in self.former}

    def stored_payloads(self, item_ids: Sequence[int]) -> Mapping[int, bytes]:
        self.compared.append(len(item_ids))
        return {id_: self.payloads[self.stored[id_]] for id_ in item_ids}

    def create_batch(
        self, session: Any, batch: Sequence[Mapping[str, Any]], /, *, known: set[int] | None = None
    ) -> list[int]:
        self.calls.append(len(batch))
        before, ids = list(self.stored), list[int]()
        for attributes in batch:
            assert attributes.keys() == {"dedup_key", "event_key", "payload"}
            if attributes["payload"] == b"bad":
                raise InvalidItem(self.refusal)
            key = attributes["dedup_key"].partition("@")[0]
            if key not in self.stored:
                self.stored.append(key)
                self.payloads[key] = attributes["payload"]
            ids.append(self.stored.index(key))
        if known is not None:
            known.update(id_ for id_ in ids if id_ < len(before))
        return ids

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> bool:
        if not self._graves:
            raise InvalidItem("no grave")
        if message.place in self.refusing:
            self.clock.advance(timedelta(seconds=self.seconds_to_refuse))
            raise GraveUnavailable("the dead-letter topic graves does not take it: too large")
        self.dead.append(f"{message.place} {reason}")
        return True

    def tell(self, error: BaseException | str, /, **context: Any) -> None:
        self.told.append(str(error))


def test_a_batch_is_stored_at_once_and_then_acknowledged() -> None:
    world = World(*map(message, range(5)))
    assert not world.consumer.turn()
    assert world.stored == [f"orders:0:{n}" for n in range(5)]
    assert world.calls == [5]
    assert world.source.committed == {("orders", 0): 5}


def test_the_guilty_message_is_found_by_halving_and_the_others_keep_their_order() -> None:
    world = World(*(message(n, value="bad" if n == 37 else "good") for n in range(100)))
    world.consumer.turn()
    assert world.stored == [f"orders:0:{n}" for n in range(100) if n != 37]
    assert world.dead == ["orders:0:37 refused"]
    assert len(world.calls) < 20
    assert world.source.committed == {("orders", 0): 100}
    assert len(world.told) == 1
    assert "orders:0:37" in world.told[0]


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), ValueError("a middleware broke")])
def test_what_is_not_stored_is_not_acknowledged_and_comes_again(error: Exception) -> None:
    world = World(message(0), message(1, value="bad"), message(2))
    world.failing = [error]
    if isinstance(error, StoreUnavailable):
        assert world.consumer.turn()
    else:
        with pytest.raises(ValueError, match="broke"):
            world.consumer.turn()
    assert (world.stored, world.dead, world.source.committed) == ([], [], {})
    assert not any("dead letters" in each for each in world.told), "nothing was buried yet"
    world.consumer.turn()
    assert world.stored == ["orders:0:0", "orders:0:2"]
    assert world.source.committed == {("orders", 0): 3}


def test_a_message_without_a_grave_halts_its_partition_and_no_other() -> None:
    first = [message(n, value="bad" if n == 2 else "good") for n in range(4)]
    world = World(*first, *(message(n, partition=1) for n in range(3)), graves=False)
    world.consumer.turn()
    assert world.stored == ["orders:0:0", "orders:0:1", "orders:1:0", "orders:1:1", "orders:1:2"]
    assert world.source.committed == {("orders", 0): 2, ("orders", 1): 3}
    assert world.source.halted == {("orders", 0): 2}
    assert "stopped at offset 2" in world.told[0]
    world.consumer.turn()
    assert len(world.told) == 1


def test_of_a_partition_that_stands_still_it_is_told_again_and_again() -> None:
    world = World(*(message(n, value="bad" if n == 1 else "good") for n in range(3)), graves=False)
    world.consumer.turn()
    for _ in range(2):
        world.clock.advance(timedelta(seconds=LAG_EVERY))
        world.consumer.turn()
    what = "consuming orders[0] for order_inbox_item"
    assert world.observer.lasting == [(what, 0), (what, LAG_EVERY), (what, 2 * LAG_EVERY)]


@pytest.mark.parametrize("together", [False, True], ids=["later", "in the batch that comes first"])
def test_a_partition_that_comes_back_past_its_bad_message_and_stops_again_is_told_again(*, together: bool) -> None:
    bad = {0, 2}
    world = World(*(message(n, value="bad" if n in bad else "good") for n in range(3)), graves=False)
    world.consumer.turn()
    assert len(world.observer.outages) == 1
    # As another worker left it, which knew where to put the message.
    world.source.put_back([message(1)])
    if not together:
        world.source.halt(message(2))
        world.consumer.turn()
        assert world.observer.recovered_from == ["consuming orders[0] for order_inbox_item"]
        world.source.put_back([message(2)])
    world.consumer.turn()
    assert world.stored == ["orders:0:1"]
    assert world.observer.recovered_from == ["consuming orders[0] for order_inbox_item"]
    first, second = (reason for _, reason in world.observer.outages)
    assert ("stopped at offset 0" in first, "stopped at offset 2" in second) == (True, True)


def test_an_outage_of_the_store_is_waited_out_with_growing_pauses_and_told_to_no_error_tracker() -> None:
    world = World(message(0))
    world.failing = [StoreUnavailable("gone") for _ in range(4)]
    pauses = [world.consumer.turn() for _ in range(4)]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1]
    assert world.told == []


@pytest.mark.parametrize("error", [NotPermitted("no INSERT"), StoreConflict("locked")])
def test_a_table_that_the_database_refuses_stays_an_outage_however_much_other_boxes_store(error: Exception) -> None:
    told = Counts()
    outages = Outages(observer=told, error_tracker=lambda *_a, **_c: None, clock=ManualClock())
    refused = World(message(0), outages=outages)
    other = World(*map(message, range(4)), batch_size=1, box=replace(BOX, name="payment_inbox_item"), outages=outages)
    refused.failing = [error] * 3
    for _ in range(3):
        refused.consumer.turn()
        other.consumer.turn()
    assert len(other.stored) == 3
    assert told.outages == [("database (order_inbox_item)", str(error))]
    assert told.recovered_from == []
    refused.consumer.turn()
    assert told.recovered_from == ["database (order_inbox_item)"]


def keyed(offset: int, value: str) -> ReceivedMessage:
    return message(offset, value=value)._replace(headers=(("Idempotency-Key", b"one"),))


def test_a_repeated_key_with_another_payload_is_counted_and_told_once_a_minute() -> None:
    world = World(keyed(0, "first"), keyed(1, "first"), keyed(2, "second"), keyed(3, "third"))
    world.consumer.turn()
    assert world.observer.consumed_batches == [{("orders", 0): Consumed(4, 3, 0, 2)}]
    (line,) = world.told
    assert "orders:0:2" in line
    assert "Idempotency-Key one" in line
    world.source.put_back([keyed(3, "third")])
    world.consumer.turn()
    assert len(world.told) == 1
    world.clock.advance(timedelta(seconds=TELL_EVERY))
    world.source.put_back([keyed(3, "third")])
    world.consumer.turn()
    assert "1 more since" in world.told[1]


def test_messages_that_are_new_or_known_by_their_place_are_compared_with_nothing() -> None:
    world = World(keyed(0, "first"), message(1))
    world.consumer.turn()
    world.source.put_back([message(1)])
    world.consumer.turn()
    assert (world.compared, world.told) == ([], [])


def test_a_contradiction_is_told_only_once_its_batch_is_stored() -> None:
    world = World(keyed(0, "first"), keyed(1, "second"))
    world.failing = [StoreUnavailable("gone")]
    world.consumer.turn()
    assert world.told == []
    world.consumer.turn()
    assert len(world.told) == 1


def test_each_commit_tells_how_many_messages_were_new_known_and_dead_by_partition() -> None:
    again = message(1)._replace(headers=(("Idempotency-Key", b"orders:0:0"),))
    world = World(message(0), again, message(2, value="bad"), message(0, partition=1))
    world.consumer.turn()
    assert world.observer.consumed_batches == [{("orders", 0): Consumed(3, 1, 1), ("orders", 1): Consumed(1)}]
    world.source.put_back([message(0)])
    world.consumer.turn()
    assert world.observer.consumed_batches[1] == {("orders", 0): Consumed(3, 2, 1)}


def test_what_is_not_committed_is_not_told() -> None:
    world = World(message(0))
    world.failing = [StoreUnavailable("gone")]
    world.consumer.turn()
    assert world.observer.consumed_batches == []
    world.consumer.turn()
    assert world.observer.consumed_batches == [{("orders", 0): Consumed(1)}]


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), ValueError("a middleware broke")])
def test_the_lag_is_told_now_and_then_also_while_nothing_can_be_stored(error: Exception) -> None:
    world = World(*map(message, range(5)))
    world.failing = [error]
    with contextlib.suppress(ValueError):
        world.consumer.turn()
    world.consumer.turn()
    assert world.observer.lags == [{("orders", 0): 5}]
    world.clock.advance(timedelta(seconds=LAG_EVERY))
    world.consumer.turn()
    assert world.observer.lags == [{("orders", 0): 5}, {("orders", 0): 0}]


def test_rows_that_an_older_version_stored_under_their_place_are_repetitions() -> None:
    world = World(*map(message, range(3)))
    world.former = {"orders:0:0": 0, "orders:0:1": 99}
    world.consumer.turn()
    assert world.stored == ["orders:0:1", "orders:0:2"], "the row of the second one is that of another message"
    assert world.observer.consumed_batches == [{("orders", 0): Consumed(3, 1)}]
    assert world.source.committed == {("orders", 0): 3}


def test_a_partition_is_looked_up_where_it_begins_or_jumps_and_as_long_as_something_is_found() -> None:
    world = World(*(message(offset) for offset in (0, 1, 2, 3, 10, 11)), batch_size=1)
    world.former = {"orders:0:0": 0}
    for _ in range(6):
        world.consumer.turn()
    assert world.stored == [f"orders:0:{offset}" for offset in (1, 2, 3, 10, 11)]
    assert world.looks == [1, 1, 1], "at offsets 0, 1 and 10"


def test_a_message_that_brings_its_own_key_is_not_looked_up() -> None:
    own = (("Idempotency-Key", b"mine"),)
    event = (("ce_source", b"/s"), ("ce_id", b"1"))
    world = World(message(0)._replace(headers=own), message(1)._replace(headers=event))
    world.consumer.turn()
    assert (world.looks, len(world.stored)) == ([], 2)


def test_where_a_dead_letter_is_refused_only_its_partition_waits_and_the_reason_names_the_dead_letter_topic() -> None:
    first = [message(n, value="bad" if n in {1, 3} else "good") for n in range(5)]
    world = World(*first, *(message(n, partition=1) for n in range(3)))
    world.refusing = {"orders:0:3"}
    world.consumer.turn()
    assert world.source.committed == {("orders", 0): 3, ("orders", 1): 3}
    assert world.stored == ["orders:0:0", "orders:0:2", "orders:1:0", "orders:1:1", "orders:1:2"]
    assert world.dead == ["orders:0:1 refused"]
    world.consumer.turn()
    assert world.source.committed == {("orders", 0): 3, ("orders", 1): 3}
    assert world.observer.outages == [
        (
            "consuming orders[0] for order_inbox_item",
            "waits at offset 3, which cannot be stored: refused; the dead-letter topic graves does not take it: too large",
        )
    ]
    world.refusing.clear()
    world.clock.advance(timedelta(seconds=SHARE * 2))
    world.consumer.turn()
    assert world.source.committed == {("orders", 0): 5, ("orders", 1): 3}
    assert world.dead == ["orders:0:1 refused", "orders:0:3 refused"]
    assert world.observer.recovered_from == ["consuming orders[0] for order_inbox_item"]


def test_what_comes_before_a_waiting_message_and_could_not_be_stored_either_comes_again_and_is_not_skipped() -> None:
    world = World(*(message(n, value="bad" if n == 2 else "good") for n in range(4)))
    world.refusing = {"orders:0:2"}
    world.failing = [StoreUnavailable("the database restarts")]
    world.consumer.turn()
    world.refusing.clear()
    world.clock.advance(timedelta(seconds=SHARE * 2))
    world.consumer.turn()
    assert world.stored == ["orders:0:0", "orders:0:1", "orders:0:3"]
    assert world.dead == ["orders:0:2 refused"]


def test_a_refused_dead_letter_is_tried_again_only_after_the_others_had_their_time() -> None:
    world = World(message(0, value="bad"))
    world.refusing = {"orders:0:0"}
    tries = []
    for _ in range(100):
        before = world.clock.monotonic()
        world.consumer.turn()
        tries.append(world.clock.monotonic() - before)
        world.clock.advance(timedelta(seconds=1))
    blocked = sum(tries)
    assert 0 < blocked <= 1.1 * (100 + blocked) / (1 + SHARE), "a try takes two seconds, and all partitions wait for it"


def test_any_reason_fits_a_dead_letter() -> None:
    """A rule's error may quote the message: half a surrogate pair, NUL, or all of a value as long as a message can be."""
    world = World(message(0, value="bad"), message(1))
    world.refusal = "no tenant \ud800\x00 of postgresql://shop:hunter2@db/shop: " + "x" * 2_000_000
    world.consumer.turn()
    assert world.source.committed == {("orders", 0): 2}
    (dead,) = world.dead
    assert dead.startswith("orders:0:0 no tenant ?\\x00 of postgresql://shop:***@db/shop: xxx")
    assert len(dead.encode()) < 1.1 * LONGEST_REASON


async def _awaited(_message: ReceivedMessage) -> str:
    return "7"


def _yielding(_message: ReceivedMessage) -> Iterator[str]:
    yield "7"


@pytest.mark.parametrize(
    ("rule", "words"),
    [(_awaited, "a coroutine that nobody waits for"), (_yielding, "a generator whose code nobody runs")],
)
def test_a_rule_whose_code_did_not_run_gives_no_attribute(rule: Callable[[ReceivedMessage], Any], words: str) -> None:
    """As of a decorator that hides ``async def``: the text of a coroutine would have been stored as the tenant."""
    world = World(
        message(0), message(1, value="other"), rules={"tenant": lambda each: rule(each) if each.offset else "7"}
    )
    world.consumer.turn()
    assert world.stored == ["orders:0:0"]
    (dead,) = world.dead
    assert dead.startswith(f"orders:0:1 tenant: the rule returned {words}")


def test_a_key_of_any_bytes_is_no_fault_where_a_rule_gives_the_event_key() -> None:
    """As keys in Avro or numbers in binary are, for which rules are written. Where the rule gives none, the key must be text."""
    world = World(
        message(0)._replace(key=b"\x00\xff"),
        message(1)._replace(key=b"\xfe"),
        rules={"event_key": lambda each: None if each.offset else (each.key or b"").hex()},
    )
    world.consumer.turn()
    assert world.stored == ["orders:0:0"]
    (dead,) = world.dead
    assert dead.startswith("orders:0:1 the key is not UTF-8")


def test_a_dead_letter_topic_that_answers_nothing_does_not_hold_up_a_turn_once_for_each_partition() -> None:
    """With twelve partitions at 30 seconds each, the group would take the consumer for dead, and so would the probe."""
    world = World(*(message(n, partition=p, value="good" if n % 2 else "bad") for p in range(12) for n in range(4)))
    world.refusing = {f"orders:{p}:0" for p in range(12)}
    world.seconds_to_refuse = 30.0
    for _ in range(5):
        began = world.clock.monotonic()
        world.consumer.turn()
        assert world.clock.monotonic() - began <= TURN_LIMIT.total_seconds() / 2
    assert len(world.observer.outages) == 12
    assert "the dead letter was not tried: others have just taken 30 s" in world.observer.outages[1][1]
    world.refusing.clear()
    world.clock.advance(timedelta(seconds=LONGEST_WAIT))
    world.consumer.turn()
    assert world.source.committed == {("orders", p): 4 for p in range(12)}
    assert len(world.observer.recovered_from) == 12
