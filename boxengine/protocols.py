"""The shapes of what you write: transports, handlers, middlewares, strategies.

Nothing needs to derive from these classes. A type checker compares a class of yours with one of them where you say so::

    transport: Transport = Webhook("https://example.org")      # in a test, or in the module itself

They say what the engine calls, in which order, and what it makes of the answer; the rest is yours.

``Result``, what a transport answers for one item: ``False`` and a ``boxengine.Failure`` are a failed attempt, and so is what
is raised. ``boxengine.errors.Unavailable``, raised or returned, is no attempt: the item stays pending. All else: delivered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from boxengine.domain.box import Box
from boxengine.domain.codec import Codec
from boxengine.domain.item import Item
from boxengine.domain.outcome import Verdict
from boxengine.domain.partitioning import PartitionStrategy
from boxengine.domain.retry import RetryContext, RetryStrategy
from boxengine.ports.delivering import BatchTransport, Result, Transport
from boxengine.ports.observing import ErrorTracker

D_contra = TypeVar("D_contra", contravariant=True)
"""What the codec of a model decodes."""
S_contra = TypeVar("S_contra", contravariant=True)
"""SQLAlchemy's ``Session``."""

__all__ = [
    "AsyncBatchTransport",
    "AsyncTransport",
    "BatchHandler",
    "BatchMiddleware",
    "BatchTransport",
    "BatchUnderWay",
    "Codec",
    "CreateBatchMiddleware",
    "CreateMiddleware",
    "DecodingBatchTransport",
    "DecodingTransport",
    "ErrorTracker",
    "Handler",
    "ItemMiddleware",
    "PartitionStrategy",
    "PollMiddleware",
    "PollTask",
    "Result",
    "RetryContext",
    "RetryStrategy",
    "Transport",
    "Verdict",
]

# ── transports, beside Transport and BatchTransport ──────────────────────────────────────────────────


class Handler(Protocol[S_contra]):
    """A transport that writes through the engine's transaction: what it writes commits with the item's status."""

    def __call__(self, item: Item, payload: Any, /, *, session: S_contra) -> Result: ...


class BatchHandler(Protocol[S_contra]):
    """The same for many items at once; one result per item, in the order given."""

    def call_batch(self, items: Sequence[Item], /, *, session: S_contra) -> Sequence[Result]: ...


class DecodingTransport(Protocol[D_contra]):
    """A transport that is given the payload as the model's codec reads it. It may take ``session`` too."""

    def __call__(self, item: Item, payload: Any, /, *, decoded: D_contra) -> Result: ...


class DecodingBatchTransport(Protocol[D_contra]):
    """The same for many items at once: ``decoded`` goes with ``items``, one by one."""

    def call_batch(self, items: Sequence[Item], /, *, decoded: Sequence[D_contra]) -> Sequence[Result]: ...


class AsyncTransport(Protocol):
    """A transport whose call is a coroutine."""

    def __call__(self, item: Item, payload: Any, /) -> Awaitable[Result]: ...


class AsyncBatchTransport(Protocol):
    """The same for many items at once; one result per item, in the order given."""

    def call_batch(self, items: Sequence[Item], /) -> Awaitable[Sequence[Result]]: ...


# ── middlewares ──────────────────────────────────────────────────────────────────────────────────────


class BatchUnderWay(Protocol):
    """What a batch middleware sees: a box, and the items that were claimed of it."""

    @property
    def box(self) -> Box: ...
    @property
    def items(self) -> Sequence[Item]: ...


class PollTask(Protocol):
    """What a poll middleware sees: a box, and which of its partitions is polled; None: it is looked at as a whole."""

    @property
    def box(self) -> Box: ...
    @property
    def partition(self) -> int | None: ...


class ItemMiddleware(Protocol):
    """Around all transports of one item (``item_process``). It calls ``call_next()`` once, or the item stays pending."""

    def __call__(self, item: Item, call_next: Callable[[], Any], /) -> Any: ...


class BatchMiddleware(Protocol):
    """Around one batch, from its rows to its outcomes (``batch_process``)."""

    def __call__(self, batch: BatchUnderWay, call_next: Callable[[], Any], /) -> Any: ...


class PollMiddleware(Protocol):
    """Around one poll of a partition (``poll``)."""

    def __call__(self, task: PollTask, call_next: Callable[[], Any], /) -> Any: ...


class CreateMiddleware(Protocol):
    """Around one ``create_*_item`` (``create_item``). The attributes may be changed before ``call_next()``."""

    def __call__(self, model: type | str, attributes: dict[str, Any], call_next: Callable[[], Any], /) -> Any: ...


class CreateBatchMiddleware(Protocol):
    """Around one ``create_*_batch`` (``create_batch``)."""

    def __call__(self, model: type | str, attributes: list[dict[str, Any]], call_next: Callable[[], Any], /) -> Any: ...
