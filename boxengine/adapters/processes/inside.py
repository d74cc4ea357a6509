"""What runs in a child process beside the handler: it talks to the worker, and ends the process when that falls silent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NoReturn

from boxengine.adapters.forked import end_forked_by_sigterm
from boxengine.domain.jobs import Held
from boxengine.ports.job_processes import Answer, Call, FromProcess, Order, Prolonged, ToProcess

WATCH = 0.25
"""The longest time in seconds between two looks at the clock."""


class WorkerLine:
    """The connection to the worker. A thread reads it, also while the handler computes."""

    def __init__(self, connection: Connection[Any, Any], lifeline: int) -> None:
        """Args:
        lifeline: the reading end of a pipe that nobody writes to, and that ends with the worker.
        """
        self._connection = connection
        self._orders: SimpleQueue[Order] = SimpleQueue()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._asked = 0
        """How many calls there were."""
        self._held: Held | None = None
        self._until = float("inf")
        _end_with(lifeline)
        threading.Thread(target=self._listen, name="boxengine-worker-line", daemon=True).start()

    def order(self) -> Order:
        """Waits for the next job."""
        return self._orders.get()

    def ask(self, call: Call) -> Answer:
        """Waits for the answer. One thread at a time.

        What a handler of signals raises, or a lack of memory, may have ended an earlier wait. That answer comes all the same.
        """
        self._asked += 1
        self.tell(replace(call, number=self._asked))
        while (answer := self._answers.get()).number != self._asked:
            pass
        return answer

    def tell(self, message: FromProcess) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
            if error.errno is None:  # no error of the system's: a handler of signals has raised TimeoutError, say
                raise
            end_all()

    def rest(self) -> None:
        """No job is at work: no lease ends."""
        self._held, self._until = None, float("inf")

    def _listen(self) -> None:
        """Ends the process if the lease has ended and nothing has come: a worker that is suspended cannot stop anybody.

        A handler's code in C may keep the interpreter to itself for longer than the lease, also between two lines of this method.
        So the clock is read before the connection: by a later time the lease may have been prolonged unheard.
        """
        while True:
            now = time.monotonic()
            try:
                message = self._connection.recv() if self._connection.poll(self._patience(now)) else None
            except (EOFError, OSError):
                end_all()
            if message is not None:
                self._take(message)
            # Of both processes the clock is the same.
            elif now >= self._until:
                end_all()

    def _patience(self, now: float) -> float:
        return max(0.0, min(WATCH, self._until - now))

    def _take(self, message: ToProcess) -> None:
        match message:
            case Order():
                self._held, self._until = message.job.held, message.until
                self._orders.put(message)
            case Answer():
                self._answers.put(message)
            case Prolonged() if message.held == self._held:
                self._until = message.until


def end_all() -> NoReturn:
    """Ends this process, and those that the handler has started, without another line of anybody's code."""
    os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)  # of a handler that has left its group


def stand_by() -> None:
    """Leaves it to the worker to heed signals: service managers and terminals send them to all processes.

    Not ignored: programs that the handler starts would inherit that.
    """

    def stay(_number: int, _frame: object) -> None: ...

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, stay)
    end_forked_by_sigterm(stay)


def _end_with(lifeline: int) -> None:
    """Lets the kernel kill the group when the worker ends. A thread cannot as long as a handler's code in C keeps the interpreter
    to itself."""
    if sys.platform == "linux":
        import fcntl  # noqa: PLC0415 - not everywhere

        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
