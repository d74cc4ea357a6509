"""Appends comments to a delivery's statements, in sqlcommenter's form: a slow query then names its box, items and trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self
from urllib.parse import quote

from sqlalchemy import Connection

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.domain.box import Box
from boxengine.domain.item import Item

Traceparent = Callable[[], str | None]
"""The current span in W3C's form; None outside of any span."""


class DeliveryComment:
    """The comment that the statements of one delivery carry."""

    def __init__(self, box: Box, traceparent: Traceparent) -> None:
        self._fields = {"box": box.name}
        self._traceparent = traceparent

    def cover(self, items: Sequence[Item]) -> None:
        """Adds the items, once they are known."""
        if items:
            ids = [item.id for item in items]
            self._fields["items"] = f"{min(ids)}-{max(ids)}"

    def __str__(self) -> str:
        fields = dict(self._fields)
        if (traceparent := self._traceparent()) is not None:
            fields["traceparent"] = traceparent
        # Encoded, because a quote or */ in a box's name would end the comment and become SQL.
        return "/*" + ",".join(f"{name}='{quote(value, safe='')}'" for name, value in fields.items()) + "*/"


class CommentingCursor:
    """Wraps a driver's cursor and appends a comment to each statement; otherwise it behaves as that cursor."""

    def __init__(self, cursor: Cursor, comment: DeliveryComment, **options: Any) -> None:
        """Args:
        options: of the driver, for each statement.
        """
        self._cursor = cursor
        self._comment = comment
        self._options = options

    def execute(self, statement: str, values: Any = None, **options: Any) -> Self:
        comment = str(self._comment)
        if values is not None:
            comment = comment.replace("%", "%%")  # the driver looks for placeholders
        self._cursor.execute(f"{statement} {comment}", values, **{**options, **self._options})
        return self

    @property
    def connection(self) -> _Connection:
        return _Connection(self)

    def beside(self, **options: Any) -> CommentingCursor:
        """Another cursor of the same connection."""
        return CommentingCursor(self._cursor.connection.cursor(**options), self._comment, **self._options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class _Connection:
    """Wraps the driver's connection, so that its further cursors add the comment, too."""

    def __init__(self, cursor: CommentingCursor) -> None:
        self.cursor = cursor.beside
        self._connection = cursor._cursor.connection  # noqa: SLF001 - its other half

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def commented(connection: Connection, cursor: Cursor, comment: DeliveryComment) -> Cursor:
    """Wraps the cursor so that each of its statements ends in the comment."""
    if connection.dialect.name == "postgresql":
        # Each comment changes the text, and each text would become a prepared statement that is never used again.
        return CommentingCursor(cursor, comment, prepare=False)
    return CommentingCursor(cursor, comment)
