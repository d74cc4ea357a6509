"""A limit on how long a call of a transport may take.

A thread cannot be stopped from outside. So the call runs in a helper thread; where it has not come back in time, it is
left to itself, and the caller goes on. It may still succeed later: then its items go out twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from boxengine.errors import NoAnswerInTime


class TimeLimit:
    """Calls one transport, from many threads, each call for so long at most."""

    def __init__(
        self,
        limit: timedelta,
        *,
        name: str,
        hanging: Callable[[str], None] = lambda _reason: None,
        returned: Callable[[], None] = lambda: None,
    ) -> None:
        """Args:
        name: of the transport.
        hanging: told, with the reason, when a call is given up.
        returned: told when a call that was given up has come back, however it ended.
        """
        self._seconds = limit.total_seconds()
        self._reason = f"no answer within {self._seconds:g} s"
        self._name = name
        self._hanging = hanging
        self._returned = returned
        self._idle: list[_Helper] = []

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What ``function(*arguments)`` returns or raises.

        Raises:
            NoAnswerInTime: it has done neither within the limit.
        """
        try:
            helper = self._idle.pop()
        except IndexError:
            helper = _Helper(f"boxengine-{self._name}")
        call = _Call(copy_context(), function, arguments, self._returned)
        helper.calls.put(call)
        if not call.wait(self._seconds, given_up=lambda: self._hanging(self._reason)):
            helper.calls.put(None)  # once the call has come back, nobody needs it any more
            raise NoAnswerInTime(self._reason)
        self._idle.append(helper)
        if call.error is not None:
            raise call.error
        return call.result

    def close(self) -> None:
        """Lets the helpers that have nothing to do end."""
        while self._idle:
            self._idle.pop().calls.put(None)


class _Call:
    """One call, between the thread that waits for it and the one that makes it."""

    def __init__(
        self, context: Context, function: Callable[..., Any], arguments: tuple[Any, ...], returned: Callable[[], None]
    ) -> None:
        self._context = context
        self._function = function
        self._arguments = arguments
        self._returned = returned
        self._changed = threading.Condition()
        self._done = False
        self._given_up = False
        self.result: Any = None
        self.error: BaseException | None = None

    def make(self) -> None:
        """In the helper's thread, with the caller's context, so that traces and logs know what it belongs to."""
        try:
            self.result = self._context.run(self._function, *self._arguments)
        except BaseException as error:  # the caller's business, as if it had called
            self.error = error
        with self._changed:
            self._done = True
            self._changed.notify_all()
            if self._given_up:
                self._returned()

    def wait(self, seconds: float, *, given_up: Callable[[], None]) -> bool:
        """Whether it came back in time; if not, ``given_up`` is told before it can come back."""
        with self._changed:
            if self._changed.wait_for(lambda: self._done, seconds):
                return True
            self._given_up = True
            given_up()
            return False


class _Helper:
    """A thread that makes calls; a daemon, so that one that hangs keeps no process from ending."""

    def __init__(self, name: str) -> None:
        self.calls: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (call := self.calls.get()) is not None:
            call.make()
            del call  # else its items would be kept until the next one
