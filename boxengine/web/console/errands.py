"""Errands: what people start in the console. They run in the background, show progress, can be cancelled and are logged."""

from __future__ import annotations

import logging
import secrets
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from boxengine.domain.box import Box
from boxengine.domain.jobs import JobBox
from boxengine.domain.masking import masked_text
from boxengine.errors import BoxError, QueueUnavailable
from boxengine.ports import Clock
from boxengine.ports.people.trail import Deed, Trail

logger = logging.getLogger("boxengine.console")
KEPT = 200
"""How many finished errands are remembered."""
AT_ONCE = 2
"""How many actions run at once, and how many counts beside them."""
COUNT = "count"
"""The action that changes nothing."""


class State(StrEnum):
    """The state of an errand."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Cancelled(Exception):
    """Somebody cancelled the errand."""


@dataclass(slots=True, kw_only=True)
class Errand:
    """One action, from its start to its end. Only its own thread changes it, except for ``cancel``."""

    id: str
    who: str
    action: str
    box: Box | JobBox
    what: str
    """Which items, in words."""
    started_at: datetime
    once: str | None = None
    """Identifies the form that asked for it; None: no form did."""
    state: State = State.RUNNING
    done: int = 0
    """Items looked at so far."""
    outcome: str = ""
    replayed_to: int | None = None
    """Of a replay, the last id that it has replayed."""
    cancel: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def changes(self) -> bool:
        """Whether the action changes anything, so that only those who may operate may cancel it."""
        return self.action != COUNT

    @property
    def things(self) -> str:
        """What the action applies to, in words."""
        return "jobs" if isinstance(self.box, JobBox) else "items"

    @property
    def again(self) -> str:
        """What the same action would do once more."""
        if self.replayed_to is None:
            return "the same action does the rest"
        return f"the same action would replay the items up to id {self.replayed_to} a second time"

    def advance(self, items: int) -> None:
        """Called after each batch.

        Raises:
            Cancelled: the errand must stop here.
        """
        self.done += items
        self.heed_cancel()

    def advance_replay(self, items: int, last_id: int) -> None:
        """The same for a replay, which must not begin from the start after it was broken off."""
        self.replayed_to = last_id
        self.advance(items)

    def heed_cancel(self) -> None:
        """Called where an errand can stop.

        Raises:
            Cancelled: the errand must stop here.
        """
        if self.cancel.is_set():
            raise Cancelled


class Errands:
    """The errands of this process. Threads are created when needed."""

    def __init__(self, trail: Trail, clock: Clock) -> None:
        self._trail = trail
        self._clock = clock
        self._errands: dict[str, Errand] = {}
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="boxengine-console-errand")
        # A count of a large table takes minutes, and anybody may start some: actions do not wait for them.
        self._counting = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="boxengine-console-count")
        _cancel_at_exit(self)

    def start(
        self,
        *,
        who: str,
        action: str,
        box: Box | JobBox,
        what: str,
        run: Callable[[Errand], str],
        once: str | None = None,
    ) -> Errand:
        """Starts an errand; ``run`` calls ``errand.advance`` now and then, and returns the outcome in words.

        Args:
            once: identifies the form that asks for it. Sent twice, as by a double click, it starts one; None: no form does.
        """
        now = self._clock.now()
        errand = Errand(
            id=secrets.token_urlsafe(9), who=who, action=action, box=box, what=what, started_at=now, once=once
        )
        with self._lock:
            for known in self._errands.values():
                if once is not None and known.once == once:
                    return known
            self._errands[errand.id] = errand
            for old in [each.id for each in self._errands.values() if each.ended.is_set()][:-KEPT]:
                del self._errands[old]
        self._tell(errand, "begun")
        (self._threads if errand.changes else self._counting).submit(self._run, errand, run)
        return errand

    def get(self, errand_id: str) -> Errand | None:
        return self._errands.get(errand_id)

    def latest(self) -> list[Errand]:
        """All remembered errands, the latest first."""
        with self._lock:
            return list(self._errands.values())[::-1]

    def cancel_all(self) -> None:
        """Has each errand stop after its batch, and those that wait not begin. An exiting interpreter waits for their threads."""
        for errand in self.latest():
            errand.cancel.set()

    def note(self, *, who: str, action: str, box: Box | JobBox, what: str, outcome: str, kept: bool = True) -> None:
        """Writes a deed to the log and the trail; during an outage of Redis, to the log only.

        Args:
            kept: whether the trail keeps it. What programs do every minute would push everything else off the trail.
        """
        deed = Deed(at=self._clock.now(), who=who, action=action, box=box.name, what=what, outcome=outcome)
        logger.info(
            "%s: %s %s of %s: %s",
            who,
            action,
            what or "polling",
            box.name,
            outcome,
            extra={"who": who, "action": action},
        )
        if not kept:
            return
        try:
            self._trail.add(deed)
        except QueueUnavailable as error:
            logger.warning("the trail is only in the log: %s", error)

    def _run(self, errand: Errand, run: Callable[[Errand], str]) -> None:
        try:
            errand.heed_cancel()  # it may have been cancelled while it waited for a thread
            errand.outcome = run(errand)
            errand.state = State.DONE
        except Cancelled:
            so_far = f"cancelled after {errand.done:,} {errand.things}"
            errand.state, errand.outcome = (
                State.CANCELLED,
                so_far if errand.replayed_to is None else f"{so_far}; {errand.again}",
            )
        except BoxError as error:
            errand.state = State.FAILED
            so_far = f"stopped after {errand.done:,} {errand.things}: {masked_text(str(error))}"
            errand.outcome = f"{so_far}. What is done stays done; {errand.again}"
        except Exception as error:
            logger.exception("%s of %s broke off", errand.action, errand.box.name)
            errand.state, errand.outcome = (
                State.FAILED,
                f"stopped after {errand.done:,} {errand.things}: {type(error).__name__}",
            )
        self._tell(errand, errand.outcome)
        errand.ended.set()

    def _tell(self, errand: Errand, outcome: str) -> None:
        self.note(
            who=errand.who, action=errand.action, box=errand.box, what=errand.what, outcome=outcome, kept=errand.changes
        )


def _cancel_at_exit(errands: Errands) -> None:
    """Has the errands stop when the interpreter exits, inside an application, too.

    The interpreter waits for threads of executors before it calls what ``atexit`` knows. Only what is registered here goes
    before that, the latest first, so before the wait that ``concurrent.futures`` registered when it was imported.
    """
    known = weakref.ref(errands)

    def cancel() -> None:
        found = known()
        if found is not None:
            found.cancel_all()

    threading._register_atexit(cancel)  # type: ignore[attr-defined] # noqa: SLF001 - nothing public comes early enough
