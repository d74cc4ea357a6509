"""PostgreSQL and Valkey from Python wheels, started as child processes on loopback.

``boxengine demo`` and the tests run on them, and so can anybody who wants a real server without
installing one: ``pip install "boxengine[embedded]"``.

::

    with EmbeddedPostgres(folder) as postgres, EmbeddedValkey(folder) as valkey:
        engine = create_engine(postgres.url("postgres"))
        redis = Redis.from_url(valkey.url())

Both are real servers: ``kill`` is SIGKILL, a restart recovers from the files, and the port stays the
same for the life of the object. Neither server outlives the process that started it.

For whoever changes this package: ``server`` is what both servers have in common, and ``postgres`` and ``valkey`` are the two.
``process`` starts a server as a child process, awaits it, and stops it. ``wheels`` finds the programs in the wheels. ``account``
is the unprivileged account under which a server runs if the caller is root.
"""

from __future__ import annotations

from boxengine.embedded.postgres import EmbeddedPostgres
from boxengine.embedded.process import ServerNotStarted
from boxengine.embedded.valkey import EmbeddedValkey
from boxengine.embedded.wheels import WheelMissing

__all__ = ["EmbeddedPostgres", "EmbeddedValkey", "ServerNotStarted", "WheelMissing"]
