"""The code that the workers run: a copy, so that editing the tree does not disturb a run of minutes, or an older version."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_NEEDED = (
    "tests/__init__.py",
    "tests/chaos/__init__.py",
    "tests/chaos/recorder.py",
    "tests/chaos/skewed.py",
    "tests/chaos/jobs/__init__.py",
    "tests/chaos/jobs/handlers.py",
    "tests/chaos/jobs/unaware.py",
)
_WITHOUT = shutil.ignore_patterns("__pycache__")


def copy_of_the_code(folder: Path) -> Path:
    """Copies the package, and what the workers need of the tests, into a new folder; returns it."""
    shutil.copytree(REPOSITORY / "boxengine", folder / "boxengine", ignore=_WITHOUT)
    (folder / "tests" / "chaos" / "jobs").mkdir(parents=True)
    for name in _NEEDED:
        shutil.copy(REPOSITORY / name, folder / name)
    return folder


def code_of(commit: str, folder: Path) -> Path:
    """The package as it was at a commit, in a new folder; returns it.

    Raises:
        subprocess.CalledProcessError: this is no repository, or a shallow one that lacks the commit.
    """
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit, "boxengine"], cwd=REPOSITORY, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder
