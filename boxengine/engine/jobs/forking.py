"""Processes that a handler forks."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ending_children() -> Iterator[None]:
    """Ends a forked process that leaves the block: it would go on as a second worker, over the connections of the first."""
    pid = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() == pid:
            raise
        if isinstance(error, SystemExit) and not error.code:
            os._exit(0)
        traceback.print_exc()
        os._exit(1)
    if os.getpid() != pid:
        os._exit(0)
