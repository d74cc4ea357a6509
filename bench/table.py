"""The table that the benchmarks fill and empty: exactly what ``boxengine db create`` makes."""

from __future__ import annotations

import psycopg

from boxengine.app.servers import Servers
from boxengine.domain.box import Box

PAYLOAD = 500
"""Bytes."""


class BenchTable:
    """One box's table, filled afresh for each round."""

    def __init__(self, servers: Servers, box: Box) -> None:
        self.dsn = servers.store.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        self.name = box.table
        self._buckets = box.bucket_size

    def fill(self, count: int) -> None:
        """Leaves ``count`` pending rows, spread evenly over the buckets, and fresh statistics."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"TRUNCATE {self.name} RESTART IDENTITY")
            connection.execute(
                f"INSERT INTO {self.name} (uuid, event_key, bucket, payload) "
                "SELECT gen_random_uuid(), n::text, n %% %s, convert_to(repeat('x', %s), 'UTF8') "
                "FROM generate_series(1, %s) AS n",
                (self._buckets, PAYLOAD, count),
            )
            connection.execute(f"VACUUM ANALYZE {self.name}")
            connection.execute("CHECKPOINT")

    def delivered(self) -> int:
        """Rows that are delivered."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute(f"SELECT count(*) FROM {self.name} WHERE status = 2").fetchone()
            return int(row[0]) if row else 0
