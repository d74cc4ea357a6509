"""A limit on how long a call of a transport may take.

Python cannot stop a thread from outside, so the call runs in a helper thread. If it does not return in time, the caller
abandons it and goes on. The call may still succeed later, and then its items are sent twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any

from boxengine.errors import NoAnswerInTime, Unavailable

Around = Callable[[Callable[[], Any]], Any]
"""Makes the call that it is given, and returns what that returns."""


class TimeLimit:
    """Calls one transport with a time limit. Shared by threads."""

    def __init__(
        self,
        limit: timedelta,
        *,
        name: str,
        hanging: Callable[[str], None] = lambda _reason: None,
        returned: Callable[[], None] = lambda: None,
        around: Sequence[Around] = (),
    ) -> None:
        """Args:
        name: the transport's name.
        hanging: called with the reason when a call is abandoned.
        returned: called when an abandoned call has returned or raised.
        around: makes each call, in the helper's thread; the first is outermost.
        """
        self._seconds = limit.total_seconds()
        self._reason = f"no answer within {self._seconds:g} s"
        self._name = name
        self._hanging = hanging
        self._returned = returned
        self._around = tuple(around)
        self._idle: list[_Helper] = []

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What ``function(*arguments)`` returns or raises.

        Raises:
            NoAnswerInTime: it did neither within the limit.
            Unavailable: the system has no thread to make the call in.
        """
        helper = self._helper()
        whole: Callable[[], Any] = partial(function, *arguments)
        for around in reversed(self._around):
            whole = partial(around, whole)
        call = _Call(copy_context(), whole, self._returned)
        helper.calls.put(call)
        if not call.wait(self._seconds, given_up=lambda: self._hanging(self._reason)):
            helper.calls.put(None)  # ends the helper once the call returns
            raise NoAnswerInTime(self._reason)
        self._idle.append(helper)
        if call.error is not None:
            raise call.error
        return call.result

    def _helper(self) -> _Helper:
        try:
            return self._idle.pop()
        except IndexError:
            try:
                return _Helper(f"boxengine-{self._name}")
            except RuntimeError as error:
                raise Unavailable(f"no thread for a call with a time limit: {error}") from error

    def close(self) -> None:
        """Ends the helpers that are idle."""
        while self._idle:
            self._idle.pop().calls.put(None)


class _Call:
    """One call, shared by the thread that waits for it and the helper that makes it."""

    def __init__(self, context: Context, function: Callable[[], Any], returned: Callable[[], None]) -> None:
        self._context = context
        self._function = function
        self._returned = returned
        self._changed = threading.Condition()
        self._done = False
        self._given_up = False
        self.result: Any = None
        self.error: BaseException | None = None

    def make(self) -> None:
        """Makes the call in the helper's thread, in the caller's context, so that traces and logs stay connected."""
        try:
            self.result = self._context.run(self._function)
        except BaseException as error:  # raised again in the caller's thread
            self.error = error
        with self._changed:
            self._done = True
            self._changed.notify_all()
            if self._given_up:
                self._returned()

    def wait(self, seconds: float, *, given_up: Callable[[], None]) -> bool:
        """Whether the call returned in time. If not, calls ``given_up`` before ``returned`` can be called."""
        with self._changed:
            if self._changed.wait_for(lambda: self._done, seconds):
                return True
            self._given_up = True
            given_up()
            return False


class _Helper:
    """A thread that makes calls. It is a daemon, so a call that hangs does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self.calls: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (call := self.calls.get()) is not None:
            call.make()
            del call  # or its items would stay in memory until the next call
