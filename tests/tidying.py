"""What a system does about old temporary files."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path


def tidy_up(folder: Path) -> None:
    """Deletes what systemd-tmpfiles deletes of a folder for temporary files after some days: all but locked folders."""
    for each in folder.iterdir():
        descriptor = os.open(each, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink()
