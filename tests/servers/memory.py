"""Where servers that tests start keep their data: in memory, if there is room."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

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


@contextmanager
def temporary_files_in(parent: Path | None) -> Iterator[None]:
    """Until the end, temporary files of this process and of those that it starts lie in a folder of ``parent``, if there is one.

    So do the data of servers of a test's own. ``tmp_path`` stays where it was, to be looked at after a failure.
    """
    if parent is None:
        yield
        return
    before = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(prefix="boxengine-tests-", dir=parent, ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o1777)
        places = {"TMPDIR": folder, "PYTEST_DEBUG_TEMPROOT": os.environ.get("PYTEST_DEBUG_TEMPROOT", before)}
        with patch.dict(os.environ, places), patch.object(tempfile, "tempdir", folder):
            yield
