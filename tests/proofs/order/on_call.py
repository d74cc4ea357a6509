"""The person on call, who sends items again that were taken for deadly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from boxengine.engine.delivering.care import ENDED
from tests.proofs.order.application import BOX

PATIENCE = 120.0
"""Seconds for one command."""


class OnCall:
    """Workers that are killed by chance can accuse an item of it; then it fails, and its key's later items wait for a person.

    See docs/isolation.md, "An item that ends the process".
    """

    def __init__(self, folder: Path, code: Path) -> None:
        """Args:
        folder: of the configuration.
        code: where Python finds boxengine.
        """
        self._folder, self._code = folder, code
        self.problems: list[str] = []

    def send_again(self) -> int:
        """Retries the failed items. Returns how many there were; one that failed for another reason is a problem."""
        failed: list[dict[str, Any]] = json.loads(self._boxengine("list", "--status", "failed", "--json"))
        for item in failed:
            if ENDED.reason not in item["error_log"]:
                self.problems.append(f"item {item['id']} failed: {item['error_log']}")
        if failed:
            self._boxengine("retry", "--yes")
        return len(failed)

    def _boxengine(self, command: str, *options: str) -> bytes:
        return subprocess.run(
            [sys.executable, "-m", "boxengine", "items", command, BOX, *options],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(self._code)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=PATIENCE,
            check=True,
        ).stdout
