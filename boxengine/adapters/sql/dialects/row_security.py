"""Finds tables whose rows PostgreSQL's row-level security may hide: of those, a worker notices nothing."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, text

from boxengine.ports.people.checkup import Remark

_MAY_HIDE = text("""
    SELECT row_security_active(c.oid) AND NOT EXISTS (
        SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd IN ('*', 'r')
        AND pg_get_expr(p.polqual, p.polrelid) = 'true'
        AND EXISTS (SELECT FROM unnest(p.polroles) AS r WHERE CASE r WHEN 0 THEN true ELSE pg_has_role(r, 'USAGE') END))
    FROM pg_class AS c WHERE c.oid = to_regclass(:name)
""")


def hidden_rows(
    connection: Connection, name: str, shown: str, *, account: str, area: str, box: str
) -> Iterator[Remark]:
    """Whether rows of the table may be hidden from this account.

    Args:
        name: of the table, quoted.
        shown: the same as people write it.
        account: quoted.
    """
    if connection.scalar(_MAY_HIDE, {"name": name}):
        yield Remark(
            area=area,
            box=box,
            text=f"Row-level security may hide rows of {shown} from this account: what it does not see is not delivered.",
            advice=f"As its owner: CREATE POLICY boxengine ON {name} TO {account} USING (true)",
        )
