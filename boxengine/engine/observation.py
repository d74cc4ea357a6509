"""Observers and tracers for when nobody watches: the defaults of everything that takes one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from boxengine.domain.box import Box
from boxengine.domain.item import Item

if TYPE_CHECKING:
    from boxengine.domain.jobs import ClaimedJob, JobBox
    from boxengine.ports import Around
    from boxengine.ports.events import Event


class NullObserver:
    """Keeps nothing."""

    def see(self, event: Event) -> None: ...


class NullTracer:
    """Follows nothing."""

    _nothing: AbstractContextManager[object] = nullcontext()

    def inject(self, headers: dict[str, str]) -> dict[str, str]:
        return headers

    def creating(self, box: Box | JobBox, count: int) -> AbstractContextManager[object]:  # noqa: ARG002 - the port's shape
        return self._nothing

    def polling(self, box: Box, partition: int) -> AbstractContextManager[object]:  # noqa: ARG002 - the port's shape
        return self._nothing

    def processing(self, box: Box, items: Sequence[Item]) -> AbstractContextManager[object]:  # noqa: ARG002 - the port's shape
        return self._nothing

    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> AbstractContextManager[object]:  # noqa: ARG002 - the port's shape
        return self._nothing

    def sending_each(self, box: Box, transport: str) -> Around | None:
        """None; in a class that derives from this one, and follows what is sent, its ``sending``."""
        if type(self).sending is NullTracer.sending:
            return None
        return lambda item: self.sending(box, transport, (item,))

    def running(self, box: JobBox, jobs: Sequence[ClaimedJob]) -> AbstractContextManager[object]:  # noqa: ARG002 - the port's shape
        return self._nothing
