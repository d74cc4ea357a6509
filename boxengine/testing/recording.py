"""A transport that sends nothing and remembers everything."""

from __future__ import annotations

from typing import Any

from boxengine.domain.item import Item


class RecordingTransport:
    """Replaces a transport that the test must not call; takes every item, or fails as told by ``answers``.

    Example::

        kafka = RecordingTransport()
        boxes.use_transport(OrderOutboxItem, kafka)
        boxes.drain()
        assert [item.event_key for item in kafka.items] == ["1", "2"]
    """

    def __init__(self, *, answers: list[Any] | None = None) -> None:
        """Args:
        answers: what the next calls return, in order; an exception, or a class of one, is raised instead. After the last, every
            item is taken.
        """
        self.items: list[Item] = []
        """All items it was called with, refused ones too, in the order of the calls."""
        self._answers = list(answers or ())

    @property
    def payloads(self) -> list[Any]:
        """The payloads of ``items``."""
        return [item.payload for item in self.items]

    def __call__(self, item: Item, payload: Any) -> Any:  # noqa: ARG002 - a transport's shape
        """Remembers the item."""
        self.items.append(item)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
            raise answer
        return answer
