"""The unprivileged account that a server runs under when the caller is root.

PostgreSQL and MariaDB refuse to run as root, and most containers run as root. Such a server needs a
folder that its account may enter; the caller's own folders are never opened up for it.
"""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from boxengine.errors import BoxError


class NoUnprivilegedAccount(BoxError):
    """The caller is root, and there is no account or no folder for a server that refuses to run as root."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user and its primary group, as numbers of the operating system."""

    uid: int
    gid: int

    def reaches(self, path: Path) -> bool:
        """Whether the account may enter ``path``, an existing folder, and all folders above it."""
        resolved = path.resolve()
        return all(self._enters(folder) for folder in (resolved, *resolved.parents))

    def _enters(self, folder: Path) -> bool:
        found = folder.stat()
        if found.st_uid == self.uid:
            return bool(found.st_mode & stat.S_IXUSR)
        if found.st_gid == self.gid:
            return bool(found.st_mode & stat.S_IXGRP)
        return bool(found.st_mode & stat.S_IXOTH)


def unprivileged_account() -> Account | None:
    """The account to run a server under: ``None`` (the caller's own) unless the caller is root.

    :raises NoUnprivilegedAccount: the caller is root, and the system has neither ``nobody`` nor ``postgres``.
    """
    if os.geteuid() != 0:
        return None
    for name in ("nobody", "postgres"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    raise NoUnprivilegedAccount("the server refuses to run as root, and neither 'nobody' nor 'postgres' is a user here")


def private_folder(preferred: Path, *, account: Account | None) -> Path:
    """Return a folder that belongs to ``account`` alone: the existing one, or a new empty one.

    If the account may not enter the parent of ``preferred``, the folder is made under the system's
    temporary folder, and ``preferred`` becomes a symbolic link to it, so that the next call finds it again.

    :raises NoUnprivilegedAccount: the temporary folder is closed to the account as well.
    """
    preferred.parent.mkdir(parents=True, exist_ok=True)
    if preferred.exists():
        return preferred.resolve()
    if account is None:
        preferred.mkdir(mode=0o700)
        return preferred
    if account.reaches(preferred.parent):
        preferred.mkdir(mode=0o700)
        os.chown(preferred, account.uid, account.gid)
        return preferred
    elsewhere = Path(tempfile.mkdtemp(prefix=f"boxengine-{preferred.name}-"))
    if not account.reaches(elsewhere.parent):
        elsewhere.rmdir()
        raise NoUnprivilegedAccount(
            f"the server runs as user {account.uid}, who may not enter {preferred.parent} nor {elsewhere.parent}; "
            "set TMPDIR to a folder open to all, or do not run as root"
        )
    os.chown(elsewhere, account.uid, account.gid)
    preferred.unlink(missing_ok=True)  # a link whose target the system has deleted
    preferred.symlink_to(elsewhere, target_is_directory=True)
    return elsewhere
