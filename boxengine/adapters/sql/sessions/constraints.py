"""Constraints that PostgreSQL checks at the commit alone, behind every savepoint (``DEFERRABLE INITIALLY DEFERRED``)."""

from __future__ import annotations

CHECK_AT_ONCE = "SET CONSTRAINTS ALL IMMEDIATE"
"""Also checks what has been put off. Ends with the transaction, or with the rollback of a savepoint."""
