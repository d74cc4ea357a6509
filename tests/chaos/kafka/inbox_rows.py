"""Messages of a topic into an inbox."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.chaos.kafka.plan import Plan, drained, killed_at_random
from tests.chaos.kafka.servers import PARTITIONS, Servers
from tests.chaos.kafka.site import INBOX, KEYS, Site, inbox_site
from tests.chaos.kafka.topic import fill
from tests.chaos.report import Row

SHOWN = 3


def consumer_sigkill(servers: Servers, folder: Path, plan: Plan) -> Row:
    """``boxengine consume`` is killed at random moments: each message is one row, each key's in order."""
    chance = plan.randomness("consumer-sigkill")
    # A static member takes its place in the group up again at once; a dynamic one would wait for its predecessor's end.
    static = {"group.instance.id": "chaos", "session.timeout.ms": 10_000}
    with inbox_site(servers, folder, concurrency=2, batch_size=200, config=static) as site:
        fill(
            servers.broker.bootstrap,
            site.topic,
            ((f"key-{number % KEYS}", str(number).encode()) for number in range(plan.items)),
        )

        def left() -> int:
            return plan.items - int(site.ask(f"SELECT count(*) FROM {INBOX}s")[0][0])

        consumer = killed_at_random(
            lambda: site.run("consume"), left, total=plan.items, times=plan.kills, randomness=chance
        )
        drained(lambda: max(0, left()))
        problems = consumer.stop()
        acknowledged = _acknowledged(site)
        if acknowledged != plan.items:
            problems.append(f"{acknowledged} messages acknowledged")
        return _judged(site, plan, problems)


def _judged(site: Site, plan: Plan, problems: list[str]) -> Row:
    rows = [
        (key, int(bytes(payload))) for key, payload in site.ask(f"SELECT event_key, payload FROM {INBOX}s ORDER BY id")
    ]
    seen = Counter(number for _, number in rows)
    last: dict[str, int] = defaultdict(lambda: -1)
    reordered = 0
    for key, number in rows:
        reordered += number < last[key]
        last[key] = max(number, last[key])
    strangers = [f"row {number} with key {key}" for key, number in rows if key != f"key-{number % KEYS}"]
    return Row(
        fault="consumer-sigkill",
        times=plan.kills,
        items=plan.items,
        lost=sum(number not in seen for number in range(plan.items)),
        reordered=reordered,
        duplicates=sum(seen.values()) - len(seen),
        problems=(*problems, *strangers[:SHOWN], *site.tracebacks()),
    )


def _acknowledged(site: Site) -> int:
    """Messages that the group has behind it."""
    consumer = Consumer({"bootstrap.servers": site.servers.broker.bootstrap, "group.id": site.topic, "log_level": 0})
    wanted = [TopicPartition(site.topic, number) for number in range(PARTITIONS)]
    try:
        return sum(max(0, each.offset) for each in consumer.committed(wanted, timeout=30))
    finally:
        consumer.close()
