"""What a session of handlers makes of errors when its connection is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.sessions.handlers_session import HandlersSession
from boxengine.errors import Abandoned, TransactionLost


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def lose(connection: sa.Connection, error: BaseException) -> None:
    """SQLAlchemy gives a connection up if Ctrl-C meets one of its statements."""
    handlers = HandlersSession(connection)
    with handlers.savepoint():
        handlers.get().execute(sa.text("SELECT 1"))
        connection.invalidate()
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Abandoned()])
def test_what_ends_the_worker_goes_on_up(connection: sa.Connection, error: BaseException) -> None:
    with pytest.raises(type(error)):
        lose(connection, error)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit()])
def test_what_a_handler_raises_is_the_loss_of_its_transaction(connection: sa.Connection, error: BaseException) -> None:
    with pytest.raises(TransactionLost) as caught:
        lose(connection, error)
    assert caught.value.__cause__ is error
