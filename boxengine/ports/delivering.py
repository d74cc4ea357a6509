"""Where items go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from boxengine.domain.item import Item

Result = Any
"""What a transport returns for one item. ``False``, a ``Failure`` or a raised exception is a failed attempt, and so is a value
that makes no sense: an awaitable, a generator, a returned exception. ``Unavailable``, raised or returned, is no attempt and
leaves the item pending. Anything else means delivered."""


class Transport(Protocol):
    """Delivers one item. May also have ``call_batch``, see ``BatchTransport``; may take ``session=``."""

    def __call__(self, item: Item, payload: Any, /) -> Result: ...


@runtime_checkable
class BatchTransport(Protocol):
    """Delivers many items at once; one result per item, in the order given."""

    def call_batch(self, items: Sequence[Item], /) -> Sequence[Result]: ...
