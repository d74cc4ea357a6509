"""Recent history: a small hash for each box and time slot, which expires.

Each box has sixty slots of a minute and 144 of ten minutes, each with at most twenty numbers, and four for each transport.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import redis
from redis.exceptions import ResponseError

from boxengine.adapters.redis.connection import translated
from boxengine.adapters.redis.foreign import DIGITS, is_number
from boxengine.ports.people.history import Calls, Happened, Slot, Span

_CALLS, _ITEMS, _FAILED_ITEMS, _MICROSECONDS = b"tc:", b"ti:", b"tf:", b"tm:"
"""Prefixes; a transport's name follows."""
_DELIVERED, _FAILED, _OLDEST, _WAITS = b"d", b"f", b"o", b"w"


class RedisHistory:
    """``History`` over Redis; a flush is one round trip."""

    def __init__(self, client: redis.Redis, *, prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix

    def add(self, happened: Mapping[str, Happened], *, now: datetime) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for box, more in happened.items():
            for span in Span:
                key = self._key(box, span, _number(span, now))
                counts = {_DELIVERED: more.delivered, _FAILED: more.failed}
                counts |= {_WAITS + str(place).encode(): count for place, count in more.waits.items()}
                for transport, calls in more.transports.items():
                    counts |= _fields(transport, calls)
                for name, count in counts.items():
                    if count:
                        pipeline.hincrby(key, name, count)
                pipeline.expire(key, _kept(span))
        self._write(pipeline)

    def measured(self, oldest_waits: Mapping[str, float], *, now: datetime) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for box, seconds in oldest_waits.items():
            for span in Span:
                key = self._key(box, span, _number(span, now))
                pipeline.hset(key, _OLDEST.decode(), str(round(seconds, 3)))
                pipeline.expire(key, _kept(span))
        self._write(pipeline)

    def read(self, box: str, span: Span, *, now: datetime) -> list[Slot]:
        last, step = _number(span, now), span.step.total_seconds()
        numbers = range(last - span.slots + 1, last + 1)
        found = self._hashes(self._key(box, span, number) for number in numbers)
        return [
            Slot(datetime.fromtimestamp(number * step, UTC), _happened(each), _oldest(each))
            for number, each in zip(numbers, found, strict=True)
        ]

    def lately(self, boxes: Sequence[str], *, now: datetime) -> Mapping[str, Happened]:
        last = _number(Span.HOUR, now)
        found = self._hashes(self._key(box, Span.HOUR, number) for box in boxes for number in (last - 1, last))
        return {
            box: sum(map(_happened, found[2 * place : 2 * place + 2]), Happened()) for place, box in enumerate(boxes)
        }

    def _key(self, box: str, span: Span, number: int) -> str:
        return f"{self._prefix}boxengine:history:{box}:{span}:{number}"

    def _write(self, pipeline: Any) -> None:
        with translated("write the history", self._client):
            # If another program has put something in a slot's place, it expires with the slot.
            for answer in pipeline.execute(raise_on_error=False):
                if isinstance(answer, Exception) and not isinstance(answer, ResponseError):
                    raise answer

    def _hashes(self, keys: Iterable[str]) -> list[dict[bytes, bytes]]:
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(key)
        with translated("read the history", self._client):
            answers = pipeline.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, Exception) and not isinstance(answer, ResponseError):
                    raise answer
        return [answer if isinstance(answer, dict) else {} for answer in answers]


def _number(span: Span, moment: datetime) -> int:
    return int(moment.timestamp() // span.step.total_seconds())


def _kept(span: Span) -> int:
    """Seconds from a slot's last change until it expires; by then it is no longer shown."""
    return int(span.step.total_seconds() * (span.slots + 2))


def _happened(found: Mapping[bytes, bytes]) -> Happened:
    waits = {
        _whole(name[1:]): _whole(count) for name, count in found.items() if name[:1] == _WAITS and is_number(name[1:])
    }
    names = [name[len(_CALLS) :] for name in found if name.startswith(_CALLS)]
    transports = {name.decode(errors="replace"): _calls(found, name) for name in names}
    return Happened(_whole(found.get(_DELIVERED, b"")), _whole(found.get(_FAILED, b"")), waits, transports)


def _fields(transport: str, calls: Calls) -> dict[bytes, int]:
    name = transport.encode()
    return {
        _CALLS + name: calls.calls,
        _ITEMS + name: calls.items,
        _FAILED_ITEMS + name: calls.failed,
        _MICROSECONDS + name: round(calls.seconds * 1e6),
    }


def _calls(found: Mapping[bytes, bytes], name: bytes) -> Calls:
    calls, items, failed, microseconds = (
        _whole(found.get(each + name, b"")) for each in (_CALLS, _ITEMS, _FAILED_ITEMS, _MICROSECONDS)
    )
    return Calls(calls, items, failed, microseconds / 1e6)


def _oldest(found: Mapping[bytes, bytes]) -> float | None:
    try:
        seconds = float(found[_OLDEST])
    except (KeyError, ValueError):
        return None
    return seconds if 0 <= seconds < 10**DIGITS else None


def _whole(text: bytes) -> int:
    return int(text) if is_number(text) else 0
