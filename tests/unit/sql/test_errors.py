"""What the database's errors say to people: the driver's first line, and what to do about it."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import create_engine

from boxengine.adapters.sql.connecting.errors import sentence, translated
from boxengine.errors import StoreUnavailable

NO_COLUMN = "boxengine db check says what the tables of the boxes lack, and what adds it"
NO_WRITES = "it is a standby, or was made read-only: let its address lead to a server that accepts writes"


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
        (
            Refused("cannot execute LOCK TABLE during recovery", "25006"),
            f"cannot execute LOCK TABLE during recovery; {NO_WRITES}",
        ),
        (
            Refused('connection failed: connection to server at "b", port 5432 failed: session is read-only', None),
            f'connection failed: connection to server at "b", port 5432 failed: session is read-only; {NO_WRITES}',
        ),
        (
            Refused(
                'connection failed: connection to server at "10.0.0.3", port 5432 failed: session is read-only\n'
                "Multiple connection attempts failed. All failures were:\n"
                "- host: 'a', port: '5432', hostaddr: '10.0.0.1': connection timeout expired\n"
                "- host: 'b', port: None, hostaddr: '10.0.0.2': connection failed: connection to server at \"10.0.0.2\", port "
                "5432 failed: Connection reset\n\tIs it there?\n"
                "- host: 'c', port: '5432', hostaddr: '10.0.0.3': connection failed: connection to server at \"10.0.0.3\", port "
                "5432 failed: session is read-only",
                None,
            ),
            (
                "host: 'a', port: '5432': connection timeout expired; connection to server at \"10.0.0.2\", port 5432 failed: "
                f'Connection reset; connection to server at "10.0.0.3", port 5432 failed: session is read-only; {NO_WRITES}'
            ),
        ),
        (Refused("division by zero", "22012"), "division by zero"),
        (
            Refused("FATAL:  sorry, too many clients already", None),
            "FATAL:  sorry, too many clients already; the server runs: find out who holds its connections, or raise the limit",
        ),
        (
            Refused('column "trace_context" of relation "report_jobs" does not exist', "42703"),
            f'column "trace_context" of relation "report_jobs" does not exist; {NO_COLUMN}',
        ),
        (
            Exception(1054, "Unknown column 'trace_context' in 'INSERT INTO'"),
            f"Unknown column 'trace_context' in 'INSERT INTO'; {NO_COLUMN} (1054)",
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


def test_what_has_ended_a_pipeline_is_told_instead_of_how_the_driver_left_it() -> None:
    lost = psycopg.OperationalError("cannot exit pipeline mode while busy")
    lost.__context__ = psycopg.errors.AdminShutdown("terminating connection due to administrator command")
    with (
        pytest.raises(StoreUnavailable, match="terminating connection"),
        translated(create_engine("postgresql+psycopg://")),
    ):
        raise lost
