"""One TLS context for all of PyMySQL's connections that ask for nothing in particular.

From 1.2 on, PyMySQL makes one for each attempt to connect, before it knows whether the server is there, and has it read the
system's authorities, though it verifies nothing unless told to. That takes 25 ms of CPU and 0.9 MB, which a failed attempt keeps
until the garbage collector's next long run. A worker with many boxes makes dozens of attempts while its server is restarted.
"""

from __future__ import annotations

import threading
from functools import cache
from ssl import SSLContext
from typing import Any


@cache
def sharing(kind: Any) -> Any:
    """Makes a kind of connection out of PyMySQL's own, which is installed only where somebody uses MySQL or MariaDB."""
    making = threading.Lock()

    class Sharing(kind):  # type: ignore[misc]
        _shared: SSLContext | None = None

        def _create_ssl_ctx(self, sslp: Any) -> SSLContext:
            if sslp:
                # Not shared: the files that it names may have been replaced meanwhile.
                made: SSLContext = super()._create_ssl_ctx(sslp)
                return made
            with making:  # threads of a worker begin together
                if Sharing._shared is None:
                    Sharing._shared = super()._create_ssl_ctx(sslp)
            return Sharing._shared

    return Sharing
