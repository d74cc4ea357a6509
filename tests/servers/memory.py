"""Where the session's servers keep their data: in memory, if there is room."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30
"""Bytes that must be free there. The whole suite needs about one GiB."""
SPARE = 8 * 2**30
"""Bytes of memory that must be available on the machine, because the programs need some, too."""


def parent_of_data(shared: Path = SHARED_MEMORY, memory: Path = Path("/proc/meminfo")) -> Path | None:
    """The folder to make the servers' folder in, or ``None`` for the usual temporary folder.

    PostgreSQL makes 300 files for a test's database and deletes them at its end. On ext4 without a journal, each new file
    searches the inodes of those deleted in the last minutes: a database takes 80 to 250 ms of CPU there, and 11 ms in memory.
    """
    if not (os.access(shared, os.W_OK | os.X_OK) and memory.exists()):
        return None
    available = re.search(r"^MemAvailable: +(\d+) kB$", memory.read_text(), re.MULTILINE)
    spare = int(available[1]) * 2**10 if available else 0
    return shared if shutil.disk_usage(shared).free >= ROOM and spare >= SPARE else None
