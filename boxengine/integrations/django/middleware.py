"""The middleware around each batch in a worker whose transports use Django's ORM."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from asgiref.sync import SyncToAsync
from django.db import close_old_connections


class FreshConnections:
    """Drops broken and expired connections around each batch, as Django does around each request.

    Each thread has connections of its own. Those of coroutines are in the one thread to which asgiref hands their calls.
    """

    def __init__(self) -> None:
        self._asked: Future[None] | None = None

    def __call__(self, _batch: Any, call_next: Callable[[], Any]) -> Any:
        """A middleware around a batch, or around a poll."""
        self._refresh_those_of_coroutines()
        close_old_connections()
        try:
            return call_next()
        finally:
            close_old_connections()
            self._refresh_those_of_coroutines()

    def in_helper(self, call: Callable[[], Any]) -> Any:
        """Around a call that has a time limit, and is made in another thread for it."""
        close_old_connections()
        try:
            return call()
        finally:
            close_old_connections()

    def _refresh_those_of_coroutines(self) -> None:
        # Nobody waits for it: the thread takes calls in turn, and those of the batch come later. If it hangs, one is enough.
        if self._asked is None or self._asked.done():
            self._asked = SyncToAsync.single_thread_executor.submit(close_old_connections)
