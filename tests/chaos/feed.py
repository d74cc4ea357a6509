"""The application of a chaos run: commits items in bursts, whatever happens to the database meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from boxengine.app.boxes import Boxes

KEYS = 200
"""Event keys of each box."""
REFUSED_ONCE, REFUSED_TWICE = 0.03, 0.01
"""Shares of the items."""


class Feed:
    """One thread, so that items of one key are committed in the order of their ids.

    A burst is one transaction per box. A transaction that fails is given up: whether the database took it is read from
    the tables afterwards.
    """

    burst = (200, 2400)
    """Items of the smallest and the largest burst."""

    def __init__(
        self,
        boxes: Boxes,
        url: str,
        *,
        connect_args: Mapping[str, Any],
        shares: Mapping[str, float],
        items: int,
        rate: float,
        randomness: random.Random,
    ) -> None:
        """Args:
        url: of the database, past any proxy.
        connect_args: of the driver.
        shares: of each box, adding up to 1.
        items: at least so many are committed in all.
        rate: items per second, on average.
        """
        self.boxes = boxes
        self.randomness = randomness
        self._shares = shares
        self._items = items
        self._rate = rate
        self._engine = create_engine(url, poolclass=NullPool, connect_args=dict(connect_args))
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos feed", daemon=True)
        self._error: BaseException | None = None
        self.commits: dict[tuple[str, int], float] = {}
        """Box and id of each item of which it is known that it was committed, and when."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._items = 0
        self._hurry.set()
        self._thread.join()
        self._engine.dispose()

    def finish(self) -> None:
        """Commits what is still to come without pauses, and returns when all is there."""
        self._hurry.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not (self._hurry.is_set() and len(self.commits) >= self._items):
                size = self.randomness.randint(*self.burst)
                for box, share in self._shares.items():
                    self._commit(box, round(size * share))
                self._hurry.wait(size / self._rate)
        except Exception as error:  # told by ``finish``, in the thread that can act on it
            self._error = error

    def _commit(self, box: str, count: int) -> None:
        try:
            with self._engine.begin() as connection:
                ids = self.create(connection, box, count)
        except DBAPIError:
            self._hurry.wait(0.1)
            return
        now = time.monotonic()
        self.commits.update(((box, id_), now) for id_ in ids)

    def create(self, connection: Connection, box: str, count: int) -> Sequence[int]:
        """So many items for the box, in the open transaction; their ids."""
        return self.boxes.create_outbox_batch(connection, box, [self._item() for _ in range(count)])

    def _item(self) -> Any:
        luck = self.randomness.random()
        refusals = 2 if luck < REFUSED_TWICE else 1 if luck < REFUSED_TWICE + REFUSED_ONCE else 0
        return {"event_key": str(self.randomness.randrange(KEYS)), "payload": b"%d " % refusals + b"x" * 200}
