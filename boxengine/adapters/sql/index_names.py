"""What the indexes of a box's table are called. Apart from the models, which need SQLAlchemy's ORM."""

from __future__ import annotations

import hashlib

LONGEST_IDENTIFIER = 63
"""Bytes, in PostgreSQL; in MySQL 64 characters."""


def index_name(kind: str, table: str, purpose: str) -> str:
    """``ix_TABLE_pending``; that of a long table is cut and has a digest, for databases take 63 characters."""
    name = f"{kind}_{table}_{purpose}"
    if len(name.encode()) <= LONGEST_IDENTIFIER:
        return name
    rest = f"_{hashlib.sha256(table.encode()).hexdigest()[:8]}_{purpose}"
    room = LONGEST_IDENTIFIER - len(kind) - 1 - len(rest)
    return f"{kind}_{table.encode()[:room].decode(errors='ignore')}{rest}"


def index_names(table: str) -> frozenset[str]:
    """All that indexes of boxengine's may be called on a table, on any database."""
    plain = ("pending", "status", "failed", "delayed", "key", "troubled")
    unique = ("dedup", "uuid")
    return frozenset(index_name(kind, table, name) for kind, names in (("ix", plain), ("ux", unique)) for name in names)
