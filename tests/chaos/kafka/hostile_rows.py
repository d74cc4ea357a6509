"""Hostile messages, topics and items: the good ones are not lost with them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from sqlalchemy import create_engine

from boxengine import BatchAttributes
from tests.chaos.kafka.judge import judge
from tests.chaos.kafka.plan import Plan, drained
from tests.chaos.kafka.servers import PARTITIONS, Servers
from tests.chaos.kafka.site import BATCH, INBOX, KEYS, Committed, Site, inbox_site, outbox_sites
from tests.chaos.kafka.topic import read, values
from tests.chaos.report import Row
from tests.integration.kafka.inbox import set_topic
from tests.servers.raw_kafka import RawRecord, write

SHARE = 10
"""One hostile message to so many good ones."""
LARGEST = 2_000
"""Bytes of a value that the inbox takes."""
BOXES = 6
OVERSIZED_EACH = 500
TOPIC_LIMIT = 50_000
SHOWN = 3


def poison(servers: Servers, folder: Path, plan: Plan) -> Row:
    """Every field of a message is fuzzed: each such message is a failed row with its reason, and all others are stored."""
    chance = plan.randomness("poison")
    with inbox_site(servers, folder, concurrency=2, max_payload_bytes=LARGEST) as site:
        set_topic(servers.broker.bootstrap, site.topic, message_timestamp_after_max_ms=str(2**63 - 1))
        bad = plan.items // SHARE
        mixed: list[tuple[int, RawRecord]] = [_good(number) for number in range(plan.items)]
        for number in range(bad):
            partition = number % PARTITIONS
            mixed.insert(chance.randrange(len(mixed)), (partition, _hostile(number, chance)))
        _write(site, mixed)
        consumer = site.run("consume")
        drained(lambda: max(0, plan.items + bad - _count(site)))
        problems = consumer.stop()
        failed = site.ask(f"SELECT payload, error_log FROM {INBOX}s WHERE status = 1")
        buried = Counter(int(bytes(payload).split()[1]) for payload, _ in failed)
        problems += _wrong(
            [f"hostile message {n} is {buried[n]} dead letters" for n in range(bad) if buried[n] != 1],
            [
                f"a dead letter without a reason: {payload!r}"
                for payload, reason in failed
                if "could not be stored" not in reason
            ],
        )
        return _judged("poison", site, plan.items, times=bad, problems=problems)


def dead_letter_topic_down(servers: Servers, folder: Path, plan: Plan) -> Row:
    """The dead-letter topic takes nothing for a while: only the partition with the dead letters waits."""
    graves = f"graves-{folder.name}-{plan.randomness('graves').randrange(10**9)}"
    bad, stuck = 50, 0
    with inbox_site(servers, folder, max_payload_bytes=LARGEST, dead_letter={"topic": graves}) as site:
        servers.make_topic(graves)
        set_topic(servers.broker.bootstrap, graves, max_message_bytes="100")
        good = [_good(number) for number in range(plan.items)]
        behind = sum(partition == stuck for partition, _ in good)
        value = random.Random(0).randbytes(LARGEST)
        _write(site, [*((stuck, RawRecord(b"dead", b"bad %d " % n + value)) for n in range(bad)), *good])
        consumer = site.run("consume")
        drained(lambda: max(0, plan.items - behind - _count(site)))
        problems = [] if _count(site) == plan.items - behind else ["the partition did not wait for its dead letter"]
        set_topic(servers.broker.bootstrap, graves, max_message_bytes="1000000")
        drained(lambda: max(0, plan.items - _count(site)))
        problems += consumer.stop()
        buried = Counter(each.split()[1] for each in values(servers.broker.bootstrap, graves))
        if buried != Counter(str(n).encode() for n in range(bad)):
            problems.append(f"{sum(buried.values())} messages in the dead-letter topic, {bad} expected")
        if graves not in consumer.log.read_text():
            problems.append("the log does not name the dead-letter topic")
        return _judged("dead-letter-topic-down", site, plan.items, times=1, problems=problems)


def oversized(servers: Servers, folder: Path, plan: Plan) -> Row:
    """Six boxes share a producer, and now and then an item is too large for the topic: no other item fails."""
    names = [f"box{number}_outbox_item" for number in range(BOXES)]
    with outbox_sites(servers, folder, names, config={"linger.ms": 20}) as site:
        set_topic(servers.broker.bootstrap, site.topic, max_message_bytes=str(TOPIC_LIMIT))
        chance = plan.randomness("oversized")
        committed = {name: _fill(site, name, plan.items // BOXES, chance) for name in names}
        good = {name: [item for item in items if len(item.payload) < TOPIC_LIMIT] for name, items in committed.items()}
        worker = site.run("start")
        drained(lambda: sum(int(site.ask(f"SELECT count(*) FROM {name}s WHERE status = 0")[0][0]) for name in names))
        problems = worker.stop()
        expected = sum(map(len, good.values()))
        messages = read(servers.broker.bootstrap, site.topic, expected=expected, patience=30)
        lost = reordered = repeats = 0
        for name in names:
            failed = {row[0] for row in site.ask(f"SELECT id FROM {name}s WHERE status = 1")}
            guilty = {item.id for item in committed[name]} - {item.id for item in good[name]}
            found = judge(good[name], [message for message in messages if message.key.startswith(name)])
            lost, reordered, repeats = lost + len(found.lost), reordered + len(found.reordered), repeats + found.repeats
            problems += _wrong(
                [f"item {id_} of {name} failed with an oversized one" for id_ in failed - guilty],
                [f"oversized item {id_} of {name} is not failed" for id_ in guilty - failed],
                found.sentences,
            )
        large = sum(map(len, committed.values())) - expected
        return Row(
            fault="oversized",
            times=large,
            items=expected,
            lost=lost,
            reordered=reordered,
            duplicates=repeats,
            problems=(*problems, *site.tracebacks()),
        )


def topic_anew(servers: Servers, folder: Path, plan: Plan) -> Row:
    """The topic is deleted and made anew, under a running consumer and between two: each message is one row.

    Until the consumer notices, it stores what lies behind its old position, so only the parts have an order.
    """
    first, second = plan.items // 4, plan.items * 3 // 4
    began = _good(0)[1].timestamp
    # Without a key, a message is known by its place and its time, and each has a time of its own.
    good = [
        (partition, record._replace(timestamp=began + number))
        for number, (partition, record) in enumerate(map(_good, range(plan.items)))
    ]
    with inbox_site(servers, folder, concurrency=2) as site:

        def stored(end: int) -> None:
            drained(lambda: max(0, end - _count(site)))

        _write(site, good[:first])
        consumer = site.run("consume")
        stored(first)
        servers.make_topic_anew(site.topic)
        _write(site, good[first:second])
        stored(second)
        problems = consumer.stop()
        if "was deleted and created again" not in consumer.log.read_text():
            problems.append("the log does not tell of the new topic")
        servers.make_topic_anew(site.topic)
        _write(site, good[second:])
        consumer = site.run("consume")
        stored(plan.items)
        problems += consumer.stop()
        early = _in_front(good[first:second], Counter(partition for partition, _ in good[:first]))
        return _judged("topic-anew", site, plan.items, times=2, problems=problems, apart=early)


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────


def _good(number: int) -> tuple[int, RawRecord]:
    key = number % KEYS
    return key % PARTITIONS, RawRecord(b"key-%d" % key, str(number).encode())


def _hostile(number: int, chance: random.Random) -> RawRecord:
    """A message of which one field, chosen at random, cannot be stored."""
    good = RawRecord(b"hostile", b"bad %d" % number)
    value = good.value or b""
    junk = b"\xff" + chance.randbytes(chance.randrange(20))
    shapes = (
        good._replace(key=junk),
        good._replace(key=b"a\x00b"),
        good._replace(key=b"k" * chance.randrange(256, 400)),
        good._replace(headers=((b"x", junk),)),
        good._replace(headers=((junk.replace(b"\x00", b"-"), b"x"),)),
        good._replace(headers=((b"x", b"a\x00b"),)),
        good._replace(headers=((b"Idempotency-Key", junk + b" %d" % number),)),
        good._replace(headers=((b"Event-Name", b"n" * 300),)),
        good._replace(timestamp=chance.choice((1_700_000_000_000_000, 2**63 - 1, -(2**63), 253_402_300_800_000))),
        good._replace(value=value + b" " + b"x" * LARGEST),
    )
    return chance.choice(shapes)


def _write(site: Site, records: Sequence[tuple[int, RawRecord]]) -> None:
    by_partition: dict[int, list[RawRecord]] = defaultdict(list)
    for partition, record in records:
        by_partition[partition].append(record)
    for partition, own in by_partition.items():
        # Timestamps of one batch are counted from its first, and what is far off has a batch of its own.
        for batch in _batches(own):
            write(site.servers.broker.bootstrap, site.topic, partition, batch)


def _batches(records: Sequence[RawRecord]) -> Iterator[list[RawRecord]]:
    batch: list[RawRecord] = []
    for record in records:
        if batch and (len(batch) == BATCH // 2 or abs(record.timestamp - batch[0].timestamp) > 2**62):
            yield batch
            batch = []
        batch.append(record)
    yield batch


def _fill(site: Site, name: str, count: int, chance: random.Random) -> list[Committed]:
    committed: list[Committed] = []
    with closing(_Disposing(site)) as engine:
        for start in range(0, count, BATCH):
            batch: list[BatchAttributes] = [
                {
                    "event_key": f"{name}-{number % KEYS}",
                    "payload": chance.randbytes(2 * TOPIC_LIMIT) if number % OVERSIZED_EACH == 7 else b"%d" % number,
                }
                for number in range(start, min(count, start + BATCH))
            ]
            with engine.engine.begin() as connection:
                ids = site.boxes.create_outbox_batch(connection, name, batch)
            committed += [
                Committed(id_, str(each["event_key"]), bytes(each["payload"]))  # type: ignore[arg-type]
                for id_, each in zip(ids, batch, strict=True)
            ]
    return committed


class _Disposing:
    def __init__(self, site: Site) -> None:
        self.engine = create_engine(site.servers.postgres.url(site.database))

    def close(self) -> None:
        self.engine.dispose()


def _count(site: Site) -> int:
    return int(site.ask(f"SELECT count(*) FROM {INBOX}s")[0][0])


def _wrong(*sentences: Sequence[str]) -> list[str]:
    return [sentence for each in sentences for sentence in each[:SHOWN]]


def _in_front(records: Sequence[tuple[int, RawRecord]], positions: Mapping[int, int]) -> frozenset[int]:
    """The numbers of those of a topic's messages that lie in front of their partition's position."""
    offsets: Counter[int] = Counter()
    numbers = set()
    for partition, record in records:
        if offsets[partition] < positions[partition]:
            numbers.add(int(record.value or b""))
        offsets[partition] += 1
    return frozenset(numbers)


def _judged(
    name: str,
    site: Site,
    items: int,
    *,
    times: int,
    problems: Sequence[str],
    apart: frozenset[int] = frozenset(),
) -> Row:
    """Args:
    apart: numbers whose order is judged by itself.
    """
    rows = site.ask(f"SELECT event_key, payload FROM {INBOX}s WHERE status = 0 ORDER BY id")
    seen: Counter[int] = Counter()
    last: dict[tuple[str, bool], int] = defaultdict(lambda: -1)
    reordered = 0
    for key, payload in rows:
        number = int(bytes(payload))
        seen[number] += 1
        line = key, number in apart
        reordered += number < last[line]
        last[line] = max(number, last[line])
    return Row(
        fault=name,
        times=times,
        items=items,
        lost=sum(number not in seen for number in range(items)),
        reordered=reordered,
        duplicates=sum(seen.values()) - len(seen),
        problems=(*problems, *site.tracebacks()),
    )
