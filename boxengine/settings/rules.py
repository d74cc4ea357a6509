"""What the keys must be to one another: contradictions that no single key shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

from boxengine.domain import partitioning, retry
from boxengine.domain.box import Storage, StrictOrder
from boxengine.domain.names import BOX_NAME, underscore
from boxengine.settings import drivers, job_rules, passwords, source_rules, subscription_rules
from boxengine.settings.boxes import BoxSettings
from boxengine.settings.diagnosis import Finding
from boxengine.settings.durations import format_iso, format_seconds
from boxengine.settings.origin import Path, dotted
from boxengine.settings.schema import DatabaseSettings, RedisSettings, Settings

SHORTEST_PARTITION = timedelta(hours=1)
MOST_PARTITIONS = 50
"""Of a log, within its retention."""
_INTO_THE_URL = "; write it into redis.url (rediss://user:password@host:port/3)"
_UNDER_SENTINEL = {
    **dict.fromkeys(("ssl", "db", "username", "password"), _INTO_THE_URL),
    **dict.fromkeys(("sentinel_username", "sentinel_password"), ""),
}
"""Keys of ``redis`` that nothing reads without Sentinels, each with what to do instead."""

Rules = Callable[[Settings], list[Finding]]
"""Which contradictions are looked for."""


def check(settings: Settings) -> list[Finding]:
    """All contradictions between keys that anybody would meet."""
    found = [
        *_database(settings.database),
        *_redis(settings.redis),
        *passwords.check(settings),
        *_timing(settings),
        *_names(settings),
        *_tables(settings),
        *source_rules.check(settings),
        *_hidden(settings),
    ]
    found += job_rules.check(settings)
    for path, name, box in declared(settings):
        found += [*_name(path, name), *_retention(path, box), *_storage(path, box, settings.database.url)]
        found += _circuit(path, box)
        found += subscription_rules.check(path, box)
    for path, _, box in boxes_with_paths(settings):
        found += [*_order(path, box), *_strategies(path, box), *_pauses(path, box), *_of_a_log(path, box)]
    return found


def check_for_worker(settings: Settings) -> list[Finding]:
    """All that ``check`` finds, database URLs that only an application can use, and files that hold no password."""
    return [*check(settings), *drivers.check(settings), *passwords.check_files(settings)]


def boxes_with_paths(settings: Settings) -> Iterator[tuple[Path, str, BoxSettings]]:
    """Each box that is delivered from, with its path and name, outbox first: the subscriptions of a box in its place."""
    for path, name, box in declared(settings):
        if not box.subscriptions:
            yield path, name, box
        for own, (reader, read) in zip(box.subscriptions, box.readers(name).items(), strict=True):
            yield (*path, "subscriptions", own), reader, read


def names(settings: Settings) -> frozenset[str]:
    """Of all boxes of the file, and of what they read."""
    items = (name for _, name, _ in (*declared(settings), *boxes_with_paths(settings)))
    return frozenset((*items, *settings.job_items))


def declared(settings: Settings) -> Iterator[tuple[Path, str, BoxSettings]]:
    """Each box of the file with its path and name, outbox first."""
    for name, box in settings.outbox_items.items():
        yield ("outbox_items", name), name, box
    for name, inbox in settings.inbox_items.items():
        yield ("inbox_items", name), name, inbox


def _database(database: DatabaseSettings) -> Iterator[Finding]:
    if database.replica_url and not database.url:
        yield _finding(("database", "replica_url"), "a replica needs a database.url beside it", "url")
    if database.listen_url and not (database.url or "").startswith("postgres"):
        yield _finding(("database", "listen_url"), "has a meaning only beside a database.url of PostgreSQL", "url")


def _redis(redis: RedisSettings) -> Iterator[Finding]:
    if redis.sentinels and not redis.master_name:
        yield _finding(("redis", "sentinels"), "Sentinel needs redis.master_name beside it", "master_name")
    if redis.master_name and not redis.sentinels:
        yield _finding(("redis", "master_name"), "has a meaning only with redis.sentinels", "sentinels")
    if not redis.sentinels:
        yield from _without_sentinels(redis)
    if not (redis.ssl or redis.url.startswith("rediss://")):
        for key in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
            if getattr(redis, key) is not None:
                yield _finding(("redis", key), "has a meaning only with TLS: rediss://, or ssl under Sentinel", "url")
    if redis.cluster:
        message = (
            "Redis Cluster is not supported: what changes together lies in different slots; use one server, or Sentinel"
        )
        yield Finding(("redis", "cluster"), message)
    if redis.sentinels and "url" in redis.model_fields_set:
        yield _finding(("redis", "url"), "contradicts redis.sentinels; expected one of the two", "sentinels")


def _without_sentinels(redis: RedisSettings) -> Iterator[Finding]:
    for key, hint in _UNDER_SENTINEL.items():
        if getattr(redis, key):
            yield _finding(("redis", key), f"has a meaning only with redis.sentinels{hint}", "sentinels")


def _timing(settings: Settings) -> Iterator[Finding]:
    processor, poller = settings.processor, settings.poller
    if processor.cutoff_timeout > processor.general_timeout:
        message = (
            f"{format_seconds(processor.cutoff_timeout)} is longer than general_timeout "
            f"({format_seconds(processor.general_timeout)}); expected at most that, so that a job stops while it has its lease"
        )
        yield _finding(("processor", "cutoff_timeout"), message, "general_timeout")
    if poller.min_queue_size > poller.max_queue_size:
        message = f"{poller.min_queue_size} is more than max_queue_size ({poller.max_queue_size})"
        yield _finding(("poller", "min_queue_size"), message, "max_queue_size")


def _names(settings: Settings) -> Iterator[Finding]:
    for name in settings.inbox_items:
        if name in settings.outbox_items:
            yield Finding(("inbox_items", name), "the name is used in outbox_items too; expected one box of each name")


def _hidden(settings: Settings) -> Iterator[Finding]:
    """A misspelt name would hide nothing, and nobody would be told."""
    known = {**settings.boxes, **settings.job_items}
    for name in settings.console.hide:
        if name != "*" and name not in known:
            message = (
                f"hides nothing: no box has this name; known: {', '.join(sorted(known)) or 'none'}; * is every box"
            )
            sections = ("outbox_items", "inbox_items", "job_items")
            yield Finding(("console", "hide", name), message, frozenset((section, name) for section in sections))


def _tables(settings: Settings) -> Iterator[Finding]:
    """Boxes with a model are left out: what table a model has is known when it has been imported."""
    first: dict[str, Path] = {}
    for path, name, box in boxes_with_paths(settings):
        if box.model is not None and box.table is None:
            continue
        table = box.table_for(name)
        other = first.setdefault(settings.spelled_out(table), path)
        if other != path and other[-1] != name:
            yield table_taken(path, table, other)


def table_taken(path: Path, table: str, other: Path) -> Finding:
    """Two boxes on one table: each would deliver the other's items."""
    message = f"works on table {table!r}, as does {dotted(other)}; expected a table for each box"
    return Finding((*path, "table"), message, frozenset({(*other, "table"), (*path, "model"), (*other, "model")}))


def _name(path: Path, name: str) -> Iterator[Finding]:
    if not BOX_NAME.fullmatch(name):
        like = "/".join("_".join(part.split("-")) for part in underscore(name).split("/"))
        guess = f" such as {like}" if BOX_NAME.fullmatch(like) else ", with / for a namespace"
        yield Finding(path, f"not a box name; expected lower case with underscores{guess}")


def _order(path: Path, box: BoxSettings) -> Iterator[Finding]:
    if box.strict_order is not StrictOrder.NONE and box.retry_strategies:
        message = (
            "contradicts strict_order: retry strategies let later items go first; expected only one of the two keys"
        )
        yield _finding((*path, "retry_strategies"), message, "strict_order")


def _strategies(path: Path, box: BoxSettings) -> Iterator[Finding]:
    for position, name in enumerate(box.retry_strategies or ()):
        if name not in retry.BUILT_IN and "." not in name:
            message = f"no retry strategy is called {name!r}; " + _choices(retry.BUILT_IN)
            yield Finding((*path, "retry_strategies", position), message)
    name = box.partition_strategy
    if name not in partitioning.BUILT_IN and "." not in name:
        message = f"no partition strategy is called {name!r}; " + _choices(partitioning.BUILT_IN)
        yield Finding((*path, "partition_strategy"), message)


def _choices(known: Iterable[str]) -> str:
    return f"expected {', '.join(known)}, or a dotted path"


def _pauses(path: Path, box: BoxSettings) -> Iterator[Finding]:
    if box.minimal_retry_interval > box.maximal_retry_interval:
        message = (
            f"{format_seconds(box.minimal_retry_interval)} is longer than "
            f"maximal_retry_interval ({format_seconds(box.maximal_retry_interval)})"
        )
        yield _finding((*path, "minimal_retry_interval"), message, "maximal_retry_interval")


def _circuit(path: Path, box: BoxSettings) -> Iterator[Finding]:
    """The longest pause left out grows with a longer pause; one that is given would be passed over in silence."""
    breaker = box.circuit_breaker
    if "longest_pause" in breaker.model_fields_set and breaker.longest_pause < breaker.pause:
        message = f"{format_seconds(breaker.longest_pause)} is shorter than pause ({format_seconds(breaker.pause)})"
        yield _finding((*path, "circuit_breaker", "longest_pause"), message, "pause")


def _retention(path: Path, box: BoxSettings) -> Iterator[Finding]:
    if box.retention < box.min_retention_period:
        message = (
            f"{format_iso(box.retention)} is shorter than "
            f"min_retention_period ({format_iso(box.min_retention_period)}); expected at least that"
        )
        yield _finding((*path, "retention"), message, "min_retention_period")
    delivered, least = box.delivered_retention, box.delivered_min_retention_period
    if timedelta(0) < delivered < least:
        message = (
            f"{format_iso(delivered)} is shorter than delivered_min_retention_period ({format_iso(least)}); "
            "expected at least that, or PT0S to delete on delivery"
        )
        key = "retention" if box.retention_delivered_items is None else "retention_delivered_items"
        yield _finding((*path, key), message, "delivered_min_retention_period")
    if not box.deletion_time_window:
        yield Finding((*path, "deletion_time_window"), "expected more than nothing, for example PT4H")


def _storage(path: Path, box: BoxSettings, url: str | None) -> Iterator[Finding]:
    yield from _partitions(path, box)
    if box.storage is not Storage.LOG:
        return
    if url is not None and not url.startswith("postgres"):
        yield Finding((*path, "storage"), "log needs PostgreSQL; expected table, or another database.url")
    if box.sequence:
        yield _finding((*path, "sequence"), "not with storage: log, which has no place for the numbers", "storage")


def _partitions(path: Path, box: BoxSettings) -> Iterator[Finding]:
    span = box.log_partitions
    if span is None:
        return
    if box.storage is not Storage.LOG:
        yield _finding((*path, "log_partitions"), "has a meaning only with storage: log", "storage")
    elif path[0] == "inbox_items":
        message = "not for inbox boxes: a message that comes twice is known by an index over the whole log"
        yield _finding((*path, "log_partitions"), message)
    # Every partition adds to the locks that each delivery takes.
    least = max(SHORTEST_PARTITION, box.delivered_retention / MOST_PARTITIONS)
    if span < least:
        message = f"{format_iso(span)} would make too many partitions of this retention; expected at least {format_iso(least)}"
        yield _finding((*path, "log_partitions"), message, "retention", "retention_delivered_items")


def _of_a_log(path: Path, box: BoxSettings) -> Iterator[Finding]:
    if box.storage is not Storage.LOG:
        return
    for name in retry.READING_KEYS.intersection(box.strategies):
        message = f"not {name} with storage: log, which does not tell whether a key's later item was delivered"
        yield _finding((*path, "retry_strategies"), message, "storage")


def _finding(path: Path, message: str, *siblings: str) -> Finding:
    return Finding(path, message, frozenset((*path[:-1], sibling) for sibling in siblings))
