"""The middleware around each batch in a worker whose transports use Django's ORM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import close_old_connections


class FreshConnections:
    """Drops broken and expired connections around each batch, as Django does around each request."""

    def __call__(self, _batch: Any, call_next: Callable[[], Any]) -> Any:
        """A batch middleware."""
        close_old_connections()
        try:
            return call_next()
        finally:
            close_old_connections()
