"""What the database's errors say to people: the driver's first line, and what to do about it."""

from __future__ import annotations

import pytest

from boxengine.adapters.sql.connecting.errors import sentence


class Refused(Exception):
    """An error of psycopg's, with the SQLSTATE that the server gave."""

    def __init__(self, text: str, sqlstate: str | None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            Refused('relation "order_outbox_items" does not exist\nLINE 1: INSERT', "42P01"),
            'relation "order_outbox_items" does not exist; boxengine db create makes the tables of the boxes',
        ),
        (
            Refused("connection failed: Connection refused", None),
            "connection failed: Connection refused; check database.url, and that the server runs",
        ),
        (Refused("division by zero", "22012"), "division by zero"),
        (
            Refused("FATAL:  sorry, too many clients already", None),
            "FATAL:  sorry, too many clients already; the server runs: find out who holds its connections, or raise the limit",
        ),
        (
            Exception(1040, "Too many connections"),
            "Too many connections; the server runs: find out who holds its connections, or raise the limit (1040)",
        ),
        (
            Exception(2003, "Can't connect to MySQL server on 'db'"),
            "Can't connect to MySQL server on 'db'; check database.url, and that the server runs (2003)",
        ),
        (
            Exception(1146, "Table 'shop.order_outbox_items' doesn't exist"),
            "Table 'shop.order_outbox_items' doesn't exist; boxengine db create makes the tables of the boxes (1146)",
        ),
    ],
)
def test_an_error_is_one_line_with_the_next_step(error: Exception, said: str) -> None:
    assert sentence(error) == f"the database: {said}"
