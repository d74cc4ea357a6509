"""``python -m tests.proofs.steady.feed CONFIG URL FILE ...``: commits items at a steady rate until its input ends.

A transaction has one batch of items. The last of them bears its number; FILE gets a line ``number began items`` for it.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from typing import Any

from sqlalchemy import Engine, create_engine

from boxengine.app.boxes import Boxes, load
from tests.proofs.steady.hurried import hurry
from tests.proofs.steady.receiver import UNMARKED

BOX = "proof_outbox_item"
PAYLOAD = 500
"""Bytes."""
KEYS = 10_000
THREADS = 8
MOST_BEHIND = 1.0
"""Seconds that are caught up on; a longer burst would make the log larger than its rate does."""


def main() -> None:
    """Starts the threads, and ends them at the end of the input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config")
    parser.add_argument("url")
    parser.add_argument("file")
    parser.add_argument("--hour", type=float, required=True, help="seconds that an hour of the retention has")
    parser.add_argument("--rate", type=float, required=True, help="items per second")
    parser.add_argument("--batch", type=int, required=True, help="items of a transaction")
    asked = parser.parse_args()
    hurry(asked.hour, transactions=1)  # it makes no partition
    engine = create_engine(asked.url, pool_size=THREADS)
    handle = os.open(asked.file, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    feed = Feed(load(asked.config), engine, handle, pause=asked.batch / asked.rate, batch=asked.batch)
    threads = [threading.Thread(target=feed.write, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    feed.stopping.set()
    for thread in threads:
        thread.join()
    sys.exit(1 if feed.failed else 0)


class Feed:
    """Threads that take turns, each with a connection of its own."""

    def __init__(self, boxes: Boxes, engine: Engine, handle: int, *, pause: float, batch: int) -> None:
        """Args:
        handle: to which lines are written.
        pause: seconds from one transaction to the next.
        batch: items of each.
        """
        self._boxes, self._engine, self._handle = boxes, engine, handle
        self._pause, self._batch = pause, batch
        self._start = time.monotonic()
        self.stopping = threading.Event()
        self.failed = False

    def write(self, number: int) -> None:
        """Every so-many-th transaction, beginning with this one."""
        try:
            with self._engine.connect() as connection:
                while not self.stopping.wait(self._until(number)):
                    transaction = connection.begin()
                    self._boxes.create_outbox_batch(
                        connection, BOX, [self._item(number, place) for place in range(self._batch)]
                    )
                    began = time.monotonic()
                    transaction.commit()
                    os.write(self._handle, b"%d %.6f %d\n" % (number, began, self._batch))
                    number += THREADS
        except BaseException:
            self.failed = True
            raise

    def _until(self, number: int) -> float:
        """Seconds until this transaction's turn."""
        wait = self._start + number * self._pause - time.monotonic()
        if wait < -MOST_BEHIND:
            self._start = time.monotonic() - MOST_BEHIND - number * self._pause
        return max(0.0, wait)

    def _item(self, number: int, place: int) -> Any:
        mark = b"%d" % number if place == self._batch - 1 else UNMARKED
        key = (number * self._batch + place) % KEYS
        return {"event_key": str(key), "payload": (mark + b" ").ljust(PAYLOAD, b"x")}


if __name__ == "__main__":
    main()
