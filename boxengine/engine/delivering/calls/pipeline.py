"""How one box's items are delivered: its transports, retry strategies and middlewares, ready to be called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from boxengine.domain.box import Box
from boxengine.domain.retry import RetryStrategy

Middleware = Callable[..., Any]
"""Called as ``(subject, call_next)``; create kinds as ``(model, attributes, call_next)``."""
AsyncMiddleware = Callable[..., Awaitable[Any]]
"""The same as ``async def``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSpec:
    """One entry of a box's ``transports``: how to make the transport, and which items it takes."""

    name: str
    build: Callable[[], Any]
    """Makes the transport with its YAML arguments."""
    event_name: str | None = None
    """Only items with this event name; None: all items."""
    disposable: bool = False
    """False: made once and kept; True: made anew for each call."""
    timeout: timedelta | None = None
    """How long one call may take; None: no limit."""


@runtime_checkable
class AroundHelpers(Protocol):
    """A batch middleware that looks after what belongs to a thread. Calls with a time limit are made in other threads."""

    def in_helper(self, call: Callable[[], Any]) -> Any:
        """Makes the call in the thread where it was called, and returns what that returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Middlewares:
    """Instances, outermost first."""

    create_item: tuple[Middleware, ...] = ()
    create_batch: tuple[Middleware, ...] = ()
    poll: tuple[Middleware, ...] = ()
    batch_process: tuple[Middleware, ...] = ()
    item_process: tuple[Middleware, ...] = ()
    item_coroutines: tuple[AsyncMiddleware, ...] = ()
    """The ``item_process`` middlewares before they were made callable by threads, if all are ``async def``; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One box, with all the code that its items pass through."""

    box: Box
    transports: tuple[TransportSpec, ...]
    retry_strategies: tuple[RetryStrategy, ...]
    model: type | None = None
    """The user's model class; None: the engine works from the table alone."""
