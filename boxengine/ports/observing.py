"""The receivers of events, traces and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId

if TYPE_CHECKING:
    from boxengine.domain.jobs import ClaimedJob, JobBox
    from boxengine.ports.events import Event


class Observer(Protocol):
    """Told what happened, to count or log it. It must not raise or block."""

    def see(self, event: Event) -> None:
        """Called from any thread, once per batch or less, never once per item of a batch.

        An observer selects the events that it needs with a ``match`` over their classes; see ``ports/events``.
        """


Around = Callable[[Item], AbstractContextManager[object]]
"""Makes what is opened around the call of a transport with one item."""


class NotTaken(Exception):
    """Raised within ``Tracer.sending``, and caught around it: the transport's answer says that it did not take these items.

    A tracer may catch it. Only so does it learn of an attempt that failed although nothing else was raised.
    """

    def __init__(self, reasons: Mapping[ItemId, str]) -> None:
        """``reasons``: by item; there is at least one."""
        first = next(iter(reasons.values()))
        super().__init__(first if len(reasons) == 1 else f"{len(reasons)} items were not taken, the first: {first}")
        self.reasons = reasons


class AttemptsFailed(Exception):
    """Raised within ``Tracer.running``, and caught around it: the attempts at these jobs have failed.

    A tracer may catch it. Only so does it learn of them: what a handler raises is caught inside.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        """``reasons``: by job; there is at least one."""
        first = next(iter(reasons.values()))
        super().__init__(first if len(reasons) == 1 else f"{len(reasons)} attempts failed, the first: {first}")


class Tracer(Protocol):
    """Follows an item from its creation to its transport, and a job to its handler, across processes.

    Never raises; costs nothing if nothing listens.

    Each context manager makes its span the current one, so that spans begun inside become its children.
    """

    def inject(self, headers: dict[str, str]) -> dict[str, str]:
        """These headers with the current context added; the same dict object if there is no context.

        A context that the headers already carry stays. For a batch, call it once with ``{}`` and share the result.
        """

    def creating(self, box: Box | JobBox, count: int) -> AbstractContextManager[object]:
        """Around the insertion of ``count`` rows."""

    def polling(self, box: Box, partition: int) -> AbstractContextManager[object]:
        """Around one poll of a partition."""

    def processing(self, box: Box, items: Sequence[Item]) -> AbstractContextManager[object]:
        """Around the work on one claim, from its rows to its commit; linked to the contexts the items carry."""

    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> AbstractContextManager[object]:
        """Around one call of a transport with one item or a whole batch; see ``NotTaken``."""

    def sending_each(self, box: Box, transport: str) -> Around | None:
        """What makes the same for each item, where a batch's items are sent one by one; None: nothing is to be made.

        Asked once per batch and transport, in the thread that sends, so that what is the same for all items is found once.
        """

    def running(self, box: JobBox, jobs: Sequence[ClaimedJob]) -> AbstractContextManager[object]:
        """Around one attempt at a job, or at all jobs of a batch, until what they wrote is committed; see ``AttemptsFailed``.

        Linked to the contexts of their creation.
        """


class ErrorTracker(Protocol):
    """Told of errors that a person should see: items that failed for good, loops that broke."""

    def __call__(self, error: BaseException | str, /, **context: Any) -> None: ...
