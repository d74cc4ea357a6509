"""The names of the indexes of a box's table. Not with the models, which need SQLAlchemy's ORM."""

from __future__ import annotations

import hashlib

LONGEST_IDENTIFIER = 63
"""Bytes, in PostgreSQL; in MySQL 64 characters."""


def index_name(kind: str, table: str, purpose: str) -> str:
    """For example ``ix_TABLE_pending``; a long table's name is cut and gets a digest, because databases allow 63 characters."""
    name = f"{kind}_{table}_{purpose}"
    if len(name.encode()) <= LONGEST_IDENTIFIER:
        return name
    rest = f"_{hashlib.sha256(table.encode()).hexdigest()[:8]}_{purpose}"
    room = LONGEST_IDENTIFIER - len(kind) - 1 - len(rest)
    return f"{kind}_{table.encode()[:room].decode(errors='ignore')}{rest}"


def index_names(table: str) -> frozenset[str]:
    """Every name that one of boxengine's indexes may have on the table, on any database."""
    plain = ("pending", "status", "failed", "delayed", "key", "troubled")
    unique = ("dedup", "uuid")
    return frozenset(index_name(kind, table, name) for kind, names in (("ix", plain), ("ux", unique)) for name in names)
