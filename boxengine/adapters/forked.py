"""Processes that users' code forks off one of ours, with our signal handlers."""

from __future__ import annotations

import os
import signal
import threading


def end_forked_by_sigterm(handler: object) -> None:
    """Lets SIGTERM end what is forked off this process from now on, instead of calling this handler there.

    ``multiprocessing`` ends its processes by it, and waits for their ends: a pool would wait for ever at the end of its block. It
    is held back until the new process has no handler any more. Python loses a signal that comes right after the fork, and does
    not notice one that comes in the very moment in which it begins to wait.
    """
    here = threading.local()

    def hold_back() -> None:
        here.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def let_through() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, here.mask)

    def let_through_in_child() -> None:
        if signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        let_through()

    os.register_at_fork(before=hold_back, after_in_parent=let_through, after_in_child=let_through_in_child)
