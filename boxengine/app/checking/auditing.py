"""Assembles the audit of one box."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from boxengine.adapters.kafka.topic_reader import TopicReader
from boxengine.adapters.matching import SqliteMatching
from boxengine.adapters.sql.looking.audit import SqlAudit
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.adapters.system import SystemClock
from boxengine.adapters.template import ItemTemplate
from boxengine.app.boxes import Boxes
from boxengine.app.servers.database import connect_store
from boxengine.domain.box import Storage
from boxengine.engine.audit.audit import Audit
from boxengine.engine.audit.table import Progress, TableAudit
from boxengine.engine.audit.topic import TopicAudit
from boxengine.errors import BadUsage
from boxengine.settings import Settings
from boxengine.settings.kafka_arguments import kafka_arguments, kafka_servers
from boxengine.settings.transport_names import KAFKA, short_name


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditChoices:
    """What the audit looks at."""

    since: datetime | None = None
    """Only items created since this moment, which has a time zone."""
    stuck_after: timedelta = timedelta(minutes=10)
    own_buckets: bool = False
    """Whether the application chooses buckets by something other than the event key."""
    kafka: bool = False
    """Whether to read the box's topics too."""
    topics: Sequence[str] = ()
    """Empty: those of the box's Kafka transports."""
    limit: int = 100
    """The most findings to report."""


@contextmanager
def auditing(boxes: Boxes, name: str, choices: AuditChoices, *, progress: Progress) -> Iterator[Audit]:
    """An audit that has not started; its connections and temporary files last as long as the block.

    Raises:
        UnknownBox: the configuration has no such box.
        BadUsage: ``database.url`` is missing, it is unknown which topics the box feeds, or the box is a log, whose rows do not
            show whether they were delivered.
    """
    box, settings = boxes.whole(name), boxes.resolved.settings
    if box.storage is Storage.LOG:
        raise BadUsage(f"box {name}: no audit with storage: log, whose rows do not tell when they were delivered")
    feed = _feed(settings, name, choices.topics) if choices.kafka else None
    with ExitStack() as stack:
        store = connect_store(settings, patient=True)
        stack.callback(store.close)
        items, rows = SqlItems(store), SqlAudit(store)
        table = TableAudit(
            box,
            store=store,
            items=items,
            rows=rows,
            since=choices.since,
            stuck_after=choices.stuck_after,
            own_buckets=choices.own_buckets,
            limit=choices.limit,
        )
        topic = None
        if feed is not None:
            log = TopicReader(
                topics=feed.topics, bootstrap_servers=feed.bootstrap_servers, config=feed.config, clock=SystemClock()
            )
            stack.callback(log.close)
            matching = SqliteMatching()
            stack.callback(matching.close)
            topic = TopicAudit(
                box,
                items=items,
                rows=rows,
                log=log,
                matching=matching,
                event_names=feed.event_names,
                since=choices.since,
            )
        yield Audit(table, topic, progress=progress)


@dataclass(frozen=True, slots=True)
class _Feed:
    """Where the items of a box go."""

    topics: tuple[str, ...]
    bootstrap_servers: str
    config: Mapping[str, Any]
    event_names: frozenset[str] | None
    """The event names of the items that go there; None: all items."""


def _feed(settings: Settings, name: str, topics: Sequence[str]) -> _Feed:
    """The topics that the box's Kafka transports feed, or the named ones; connects as the first of those transports does."""
    feeds = list(_feeds(settings, name))
    defaults = kafka_arguments({}, settings.kafka)
    servers = _only(name, {feed.bootstrap_servers for feed in feeds} or {kafka_servers(defaults)})
    config = feeds[0].config if feeds else defaults.get("config") or {}
    known = {topic: feed.event_names for feed in feeds for topic in feed.topics}
    chosen = tuple(dict.fromkeys(topics)) or _literal(name, known)
    return _Feed(chosen, servers, config, _event_names(known, topics or known))


def _only(name: str, servers: set[str]) -> str:
    """The servers of the one cluster that the box feeds."""
    if len(servers) > 1 or "" in servers:
        missing = "no bootstrap_servers" if "" in servers else "Kafka transports of several clusters"
        raise BadUsage(f"box {name} has {missing}: give kafka.bootstrap_servers in a configuration for the audit")
    return servers.pop()


def _literal(name: str, topics: Collection[str]) -> tuple[str, ...]:
    """The topics as Kafka calls them: in the configuration a brace is doubled."""
    if not topics:
        raise BadUsage(f"box {name} has no kafka transport; name the topic that it feeds with --topic")
    names = []
    for topic in topics:
        always = ItemTemplate(topic, what="topic").constant
        if always is None:
            raise BadUsage(f"box {name}: topic {topic!r} depends on the item; name all its topics with --topic")
        names.append(always)
    return tuple(names)


def _feeds(settings: Settings, name: str) -> Iterator[_Feed]:
    for transport in settings.boxes[name].transports.values():
        if short_name(transport.class_name) == KAFKA:
            arguments = kafka_arguments(transport.arguments, settings.kafka)
            yield _Feed(
                topics=(str(arguments["topic"]),),
                bootstrap_servers=kafka_servers(arguments),
                config=arguments.get("config") or {},
                event_names=None if transport.event_name is None else frozenset({transport.event_name}),
            )


def _event_names(known: Mapping[str, frozenset[str] | None], topics: Iterable[str]) -> frozenset[str] | None:
    """The event names that the configuration sends to these topics; None if it does not say, or sends all."""
    names: frozenset[str] = frozenset()
    for topic in topics:
        own = known.get(topic)
        if own is None:
            return None
        names |= own
    return names
