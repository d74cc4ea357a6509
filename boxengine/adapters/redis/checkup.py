"""Finds trouble in Redis: its role, its memory, its clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import redis

from boxengine.adapters.redis.connection import translated
from boxengine.domain.box import Box
from boxengine.engine.checkup import clock_remark
from boxengine.ports.people.checkup import Remark

AREA = "redis"
_FULL = 0.9


class RedisCheckup:
    """``Checkup`` of Redis."""

    def __init__(self, client: redis.Redis, *, now: Callable[[], datetime]) -> None:
        """Args:
        now: this machine's clock, with zone.
        """
        self._client = client
        self._now = now

    def remarks(self, boxes: Sequence[Box]) -> list[Remark]:  # noqa: ARG002 - the same for all boxes
        with translated("look Redis over", self._client):
            info: Any = self._client.info()
            before = self._now()
            seconds, microseconds = self._client.time()
            after = self._now()
        name = "Valkey" if "valkey_version" in info else "Redis"
        version = info.get("valkey_version") or info.get("redis_version", "of an unknown version")
        told = datetime.fromtimestamp(seconds + microseconds / 1e6, UTC)
        return [
            Remark(area=AREA, text=f"{name} {version}."),
            *_role(info),
            _memory(info),
            clock_remark(AREA, "Redis's clock", before, told, after),
        ]


def _role(info: dict[str, Any]) -> Iterator[Remark]:
    if info.get("role") == "slave" and info.get("slave_read_only", 1):
        yield Remark(
            area=AREA,
            text="Redis is a replica and takes no writes, so nothing is delivered.",
            advice="Let redis.url lead to the primary.",
        )


def _memory(info: dict[str, Any]) -> Remark:
    policy, limit, used = (
        info.get("maxmemory_policy", "noeviction"),
        info.get("maxmemory", 0),
        info.get("used_memory", 0),
    )
    if limit and policy != "noeviction":
        return Remark(
            area=AREA,
            text=f"maxmemory-policy is {policy}: when memory runs short, Redis drops jobs, leases and pauses.",
            advice="Set maxmemory-policy to noeviction, or give boxengine a Redis of its own.",
        )
    if limit and used > limit:
        return Remark(
            area=AREA,
            text=f"Redis is full and takes no jobs, so nothing is delivered: it has used {used / limit:.0%} of its memory.",
            advice="Raise maxmemory, or find out what fills it.",
        )
    if limit and used > _FULL * limit:
        return Remark(
            area=AREA,
            text=f"Redis has used {used / limit:.0%} of its memory; once it is full it takes no jobs, and nothing is delivered.",
            advice="Raise maxmemory, or find out what fills it.",
        )
    return Remark(area=AREA, text=f"Redis has memory to spare (maxmemory-policy {policy}).")
