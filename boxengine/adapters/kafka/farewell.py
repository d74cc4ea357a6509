"""Lets go of librdkafka's clients where nobody waits for it.

librdkafka destroys a client when the last reference to it goes, and waits for its own threads then, for ever if one of
them hangs, for example while it resolves a broker's name. A thread that delivers must not be the one to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

THREAD = "boxengine-kafka-farewell"


def part_with(clients: list[Any], *, last: Callable[[Any], None] = lambda _client: None) -> None:
    """Destroys clients in a thread of its own, if there is one to be had. It empties the list.

    Args:
        clients: the list holds the last references.
        last: called with each client before that.
    """
    try:
        Thread(target=_destroy, args=(clients, last), name=THREAD, daemon=True).start()
    except RuntimeError:  # the system has no thread
        _destroy(clients, last)


def _destroy(clients: list[Any], last: Callable[[Any], None]) -> None:
    while clients:
        last(clients[-1])
        clients.pop()
