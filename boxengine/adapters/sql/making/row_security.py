"""Finds tables whose rows PostgreSQL's row-level security may hide: of those, a worker notices nothing."""

from __future__ import annotations

from sqlalchemy import Connection, text

from boxengine.ports.people.checkup import Remark

_MAY_HIDE = text("""
    SELECT row_security_active(c.oid) AND NOT EXISTS (
        SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd IN ('*', 'r')
        AND pg_get_expr(p.polqual, p.polrelid) = 'true'
        AND EXISTS (SELECT FROM unnest(p.polroles) AS r WHERE CASE r WHEN 0 THEN true ELSE pg_has_role(r, 'USAGE') END))
    FROM pg_class AS c WHERE c.oid = to_regclass(:name)
""")


def may_hide(connection: Connection, name: str) -> bool:
    """Whether rows of the table, whose name is quoted, may be hidden from this account."""
    return bool(connection.scalar(_MAY_HIDE, {"name": name}))


def hidden_rows(name: str, shown: str, *, account: str, area: str, box: str) -> Remark:
    """What people are told of a table whose rows may be hidden.

    Args:
        name: of the table, quoted.
        shown: the same as people write it.
        account: quoted.
    """
    return Remark(
        area=area,
        box=box,
        text=f"Row-level security may hide rows of {shown} from this account: what it does not see is not delivered.",
        advice=f"As its owner: CREATE POLICY boxengine ON {name} TO {account} USING (true)",
    )
