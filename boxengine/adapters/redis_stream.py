"""The transport ``redis_stream``: each item becomes one entry of a Redis stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ExecAbortError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout
from redis.retry import Retry

from boxengine.adapters.redis.connection import NO_LIMIT, refused_options
from boxengine.adapters.serializers import SerializationContext, Serializer, serialized
from boxengine.adapters.serializers import loaded as loaded_serializer
from boxengine.adapters.serializers import serializer as find_serializer
from boxengine.adapters.template import ItemTemplate
from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.domain.redis_urls import demand_redis_url
from boxengine.engine.attempt import ends_the_worker, reason_of
from boxengine.errors import BoxError, Unavailable

TIMEOUT = 10.0
"""Seconds."""
Result = Failure | Unavailable | None

_ELSEWHERE = (ReadOnlyError, MovedError)
"""Refusals of a server whose place another one has taken over."""
_OF_THE_SERVER = (*_ELSEWHERE, AskError, OutOfMemoryError, ClusterDownError, TryAgainError, ExecAbortError)
"""Refusals that say nothing about the entry, by redis-py's classes: MASTERDOWN is a CLUSTERDOWN there, LOADING an outage."""
_CODES_OF_THE_SERVER = frozenset({"BUSY", "MISCONF", "NOREPLICAS"})
"""More of them, which have no class."""


class RedisStreamTransport:
    """Adds entries with the fields ``uuid``, ``event_name``, ``event_key``, ``headers`` (JSON) and ``payload``.

    A batch is one round trip. How long an entry that Redis acknowledged survives is up to that server's persistence.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        stream: name, or a template over the item (``orders.{event_name}``; see ``ItemTemplate``).
        maxlen: entries the stream keeps, older ones are trimmed; None: all.
        approximate: whether it may keep somewhat more, which costs Redis much less.
        timeout: seconds for connecting and for each answer.
        serializer: ``json``, ``bytes`` or a dotted path; see ``boxengine.adapters.serializers``.

    Raises:
        BoxError: any of the above is wrong. The server is not asked.
    """

    def __init__(
        self,
        *,
        url: str = "redis://127.0.0.1:6379/0",
        stream: str,
        maxlen: int | None = None,
        approximate: bool = True,
        timeout: float = TIMEOUT,
        serializer: str | Serializer = "json",
    ) -> None:
        _demand_length(maxlen)
        _demand_time(timeout)
        self._stream = _template(stream)
        self._maxlen = maxlen
        self._approximate = approximate
        self._serializer = find_serializer(serializer)
        self._redis = _client(url, timeout)

    @staticmethod
    def checks(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], object]]]:
        """What shows that an argument is wrong before the transport is made; see ``boxengine.settings.transports``."""
        yield "stream", partial(_template, arguments["stream"])
        yield "timeout", partial(_demand_time, arguments.get("timeout", TIMEOUT))
        yield "maxlen", partial(_demand_length, arguments.get("maxlen"))
        yield "serializer", partial(loaded_serializer, arguments.get("serializer", "json"))
        if "url" in arguments:
            yield "url", partial(_client, arguments["url"], TIMEOUT)

    def __call__(self, item: Item, payload: Any) -> Result:
        return self.call_batch([item._replace(payload=payload)])[0]

    def call_batch(self, items: Sequence[Item]) -> list[Result]:
        results: list[Result] = [None] * len(items)
        entries: dict[str, list[_Entry]] = {}
        for index, item in enumerate(items):
            try:
                stream, fields = self._entry(item)
            except Unavailable as outage:
                # What comes after it could overtake it.
                results[index:] = [outage] * (len(items) - index)
                break
            except BaseException as error:  # a user's serializer may raise anything, and only this item fails
                if ends_the_worker(error):
                    raise
                results[index] = Failure(f"redis_stream: the entry could not be built: {reason_of(error)}")
                continue
            entries.setdefault(stream, []).append(_Entry(index, item.event_key, fields))
        answers = self._added(entries)
        for index, answer in answers.items():
            if isinstance(answer, Exception):
                reason = f"redis_stream: {type(answer).__name__}: {answer}"
                results[index] = Unavailable(reason) if self._stops_all(answer) else Failure(reason)
        if any(isinstance(answer, _ELSEWHERE) for answer in answers.values()):
            # After a failover, the name leads to another server; a kept connection never would.
            self._redis.connection_pool.disconnect(inuse_connections=False)
        return results

    def close(self) -> None:
        """Closes idle connections; a later delivery opens new ones."""
        self._redis.close()

    def _stops_all(self, answer: Exception) -> bool:
        """Whether the answer says nothing about the entry: any other would have met it."""
        return _is_of_the_server(answer) or (self._stream.constant is not None and _is_of_the_stream(answer))

    def _entry(self, item: Item) -> tuple[str, dict[Any, Any]]:
        name = self._stream(item)
        headers = list(item.headers.items())
        payload = serialized(self._serializer, item.payload, SerializationContext(item, name, headers))
        return name, {
            "uuid": item.uuid,
            "event_name": item.event_name or "",
            "event_key": item.event_key,
            "headers": json.dumps(dict(headers), ensure_ascii=False, default=str),
            "payload": payload or b"",
        }

    def _added(self, entries: Mapping[str, Sequence[_Entry]]) -> dict[int, Any]:
        """Adds all entries in one round trip; returns Redis's answers, by the item's place.

        All of one stream's entries are added or none, if one could overtake another of its key. A server that takes no entries,
        such as one whose memory is full, may take them again in the middle of a batch.
        """
        at_once = {stream for stream, each in entries.items() if len({entry.key for entry in each}) < len(each)}
        pipeline: Any
        with self._redis.pipeline(transaction=False) as pipeline:
            for stream, each in entries.items():
                if stream in at_once:
                    pipeline.execute_command("MULTI")
                for entry in each:
                    pipeline.xadd(stream, entry.fields, maxlen=self._maxlen, approximate=self._approximate)
                if stream in at_once:
                    pipeline.execute_command("EXEC")
            try:
                answers = iter(pipeline.execute(raise_on_error=False))
            except (RedisConnectionError, RedisTimeout) as error:
                # Which entries Redis has added is unknown, so all are tried again.
                raise Unavailable(f"redis_stream: {type(error).__name__}: {error}") from error
            except RedisError as error:
                return {entry.place: error for each in entries.values() for entry in each}
        return {
            entry.place: answer
            for stream, each in entries.items()
            for entry, answer in zip(each, _answers(answers, len(each), at_once=stream in at_once), strict=True)
        }


class _Entry(NamedTuple):
    """What is added for one item."""

    place: int
    """The item's place in the batch."""
    key: str
    fields: dict[Any, Any]


def _answers(answers: Iterator[Any], count: int, *, at_once: bool) -> Sequence[Any]:
    """The next answers: one for each of one stream's entries."""
    if not at_once:
        return list(islice(answers, count))
    begun, queued, ended = next(answers), list(islice(answers, count)), next(answers)
    if isinstance(begun, Exception):
        # The account may not use MULTI: each entry was added by itself.
        return queued
    if isinstance(ended, Exception):
        refusal = next((answer for answer in queued if isinstance(answer, Exception)), ended)
        return [refusal] * count
    return ended  # type: ignore[no-any-return] # redis-py leaves it open


def _demand_length(maxlen: int | None) -> None:
    if maxlen is not None and maxlen < 1:
        raise BoxError("redis_stream: maxlen must be at least 1")


def _demand_time(seconds: float) -> None:
    if seconds <= 0:
        raise BoxError("redis_stream: timeout must be more than 0 seconds")


def _template(stream: str) -> ItemTemplate:
    if not stream:
        raise BoxError("redis_stream: stream is empty")
    return ItemTemplate(stream, what="stream")


def _client(url: str, timeout: float) -> Redis:
    """Connects at its first command."""
    try:
        demand_redis_url(url)
        # A retry by the client would add entries twice without our knowing; the engine retries, and counts.
        client = Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            max_connections=NO_LIMIT,
        )
    except ValueError:
        # The error would quote what it took for the port, which may be a part of the password.
        raise BoxError(
            "redis_stream: url is not understood; expected redis://, rediss:// or unix://, and in a password "
            "%2F %3F %23 %40 for / ? # @; the database is a number"
        ) from None
    if refused := refused_options(client.connection_pool):
        raise BoxError(f"redis_stream: url has an option that redis-py refuses: {refused}")
    return client


def _is_of_the_server(answer: Exception) -> bool:
    """Whether the server takes no entries at the moment, whatever is in them."""
    return isinstance(answer, _OF_THE_SERVER) or str(answer).partition(" ")[0] in _CODES_OF_THE_SERVER


def _is_of_the_stream(answer: Exception) -> bool:
    """Whether the account may not write to the stream, or the name is not that of a stream."""
    return isinstance(answer, NoPermissionError) or str(answer).startswith("WRONGTYPE ")
