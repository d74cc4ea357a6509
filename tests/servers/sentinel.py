"""A Valkey Sentinel, which tells clients where the master is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from boxengine.embedded import EmbeddedValkey
from boxengine.embedded.process import ServerProcess

MASTER = "main"
_START_PATIENCE = timedelta(seconds=30)


class EmbeddedSentinel(EmbeddedValkey):
    """A lone Sentinel. It names the server that ``name`` was told last, and starts no failover of its own accord."""

    def name(self, master: EmbeddedValkey) -> None:
        """From now on this server is the master, as after a failover."""
        with Redis(port=self.port) as admin:
            known: Any = admin.sentinel_masters()
            if MASTER in known:
                admin.execute_command("SENTINEL", "REMOVE", MASTER)
            admin.execute_command("SENTINEL", "MONITOR", MASTER, "127.0.0.1", master.port, 1)

    def _launch(self, program: Path) -> None:
        config = self.data_dir / "sentinel.conf"
        config.write_text(f"bind 127.0.0.1\nport {self.port}\ndir {self.data_dir}\n")
        self._process = ServerProcess([str(program), str(config), "--sentinel"], log_path=self.log_path)
        self._process.wait_until(self._answers, patience=_START_PATIENCE)

    def _answers(self) -> bool:
        with Redis(port=self.port, socket_timeout=1) as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False
