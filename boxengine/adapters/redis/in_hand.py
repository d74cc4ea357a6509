"""Notes items that are sent one at a time, in a hash per box: shows what a worker was sending when it died."""

from __future__ import annotations

from datetime import timedelta

import redis
from redis.exceptions import ResponseError

from boxengine.adapters.redis import keys
from boxengine.adapters.redis.connection import translated
from boxengine.adapters.redis.foreign import is_number, is_wrong_type
from boxengine.domain.box import Box

REMEMBERED_FOR = timedelta(hours=1)
"""Counted from the box's last item."""


class RedisInHand:
    """``InHand`` over Redis."""

    def __init__(self, client: redis.Redis, *, worker: str) -> None:
        """Args:
        worker: this process's name, which is new after each start.
        """
        self._client = client
        self._worker = worker

    def put(self, box: Box, item: str) -> int:
        """See ``InHand.put``. Only the holder of its bucket notes an item, so reading and writing may be two steps."""
        with translated("note the item in hand", self._client):
            deaths, before = self._note(box, item)
            deaths += before != self._worker
            pipeline = self._client.pipeline()
            pipeline.hset(keys.in_hand(box), item, f"{deaths}:{self._worker}")
            pipeline.pexpire(keys.in_hand(box), REMEMBERED_FOR)
            pipeline.execute()
        return deaths

    def _note(self, box: Box, item: str) -> tuple[int, str]:
        """How many workers the item has outlived, and who noted it last; an unreadable note counts as none."""
        try:
            noted = self._client.hget(keys.in_hand(box), item)
        except ResponseError as error:
            if not is_wrong_type(error):
                raise
            self._client.delete(keys.in_hand(box))  # the notes are a help, and nothing depends on them
            noted = None
        text = noted.decode(errors="replace") if isinstance(noted, bytes) else ""
        deaths, colon, worker = text.partition(":")
        return (int(deaths), worker) if colon and is_number(deaths.encode()) else (0, self._worker)

    def take_out(self, box: Box, item: str) -> None:
        """Removes the item's note, once its sending has ended, whatever the result."""
        with translated("forget the item in hand", self._client):
            self._client.hdel(keys.in_hand(box), item)
