"""``boxengine create``: puts items in, one from options or many from JSON lines."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from boxengine.cli.context import globals_of, notes, output
from boxengine.domain.box import BoxType
from boxengine.errors import BoxError, InvalidItem

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from boxengine.app.boxes import Boxes

BATCH = 1000
"""Items per statement and transaction."""


class BadLine(BoxError):
    """A line of the input that is no item. Nothing of its batch has been written."""


def create(
    context: typer.Context,
    box: Annotated[str, typer.Argument(help="Name of the box.")],
    event_key: Annotated[str | None, typer.Option("--event-key", help="What the item is about; its order key.")] = None,
    payload: Annotated[str | None, typer.Option("--payload", help="The payload as text.")] = None,
    payload_file: Annotated[Path | None, typer.Option("--payload-file", help="Or a file that holds it.")] = None,
    event_name: Annotated[str | None, typer.Option("--event-name", help="What happened.")] = None,
    jsonl: Annotated[
        str | None, typer.Option("--jsonl", help="A file of JSON lines, one item each, or - for standard input.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report bad lines and go on.")] = False,  # noqa: FBT002 - typer's way
) -> None:
    """Put items into a box.

    A JSON line is an object with event_key and payload (text, or any JSON value, which is stored as JSON; or
    payload_base64), and event_name, options, uuid, dedup_key, available_at where wanted. Lines are written 1,000 to a
    transaction. A bad line ends the command before its batch is written; what came before it is in.

    Examples: boxengine create order_outbox_item --event-key 42 --payload '{"id": 42}';
    boxengine create order_outbox_item --jsonl items.jsonl
    """
    from boxengine.app.servers import connect_store  # noqa: PLC0415 - see Globals.boxes

    boxes = globals_of(context).boxes()
    boxes.box(box)
    store = connect_store(boxes.resolved.settings)
    writer = _Writer(boxes, box, store.engine)
    try:
        if jsonl is not None:
            with _opened(jsonl) as (lines, size):
                written, bad = _stream(writer, lines, size, skip_bad=skip_bad)
            output().print(f"{written} items written to {box}" + (f", {bad} bad lines left out" if bad else ""))
            return
        if event_key is None:
            raise typer.BadParameter("is needed, or --jsonl", param_hint="--event-key")
        data = payload_file.read_bytes() if payload_file else (payload or "").encode()
        attributes: dict[str, Any] = {"event_key": event_key, "payload": data}
        if event_name is not None:
            attributes["event_name"] = event_name
        ids = writer.write([attributes])
        output().print(f"item {ids[0]} written to {box}")
    except OSError as error:
        raise BoxError(f"{error.filename or jsonl or payload_file}: {error.strerror}") from error
    finally:
        store.close()


class _Writer:
    def __init__(self, boxes: Boxes, box: str, engine: Engine) -> None:
        self._box = box
        self._engine = engine
        self._create = boxes.create_outbox_batch if boxes.box(box).type is BoxType.OUTBOX else boxes.create_inbox_batch

    def write(self, items: list[dict[str, Any]]) -> list[int]:
        """One transaction."""
        from boxengine.adapters.sql.errors import translated  # noqa: PLC0415 - see Globals.boxes

        with translated(self._engine), self._engine.begin() as connection:
            return self._create(connection, self._box, items)


def _stream(writer: _Writer, lines: IO[bytes], size: int | None, *, skip_bad: bool) -> tuple[int, int]:
    written = bad = 0
    first, batch = 1, []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=notes(), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("bytes", total=size)
        for number, line in enumerate(lines, start=1):
            progress.advance(task, len(line))
            if not line.strip():
                continue
            try:
                batch.append(_item(line))
            except InvalidItem as error:
                if not skip_bad:
                    message = f"line {number}: {error}; {written} items written, go on from line {first}"
                    raise BadLine(message) from error
                bad += 1
                notes().print(f"line {number}: {error}")
            if len(batch) == BATCH:
                written += _write(writer, batch, first=first, last=number, written=written)
                first, batch = number + 1, []
        if batch:
            written += _write(writer, batch, first=first, last=None, written=written)
    return written, bad


def _write(writer: _Writer, batch: list[dict[str, Any]], *, first: int, last: int | None, written: int) -> int:
    try:
        return len(writer.write(batch))
    except InvalidItem as error:
        lines = f"lines {first} to {last}" if last else f"lines from {first} on"
        raise BadLine(f"{lines}: {error}; {written} items written, go on from line {first}") from error


def _item(line: bytes) -> dict[str, Any]:
    """The attributes of one line.

    Raises:
        InvalidItem: what is wrong with it.
    """
    try:
        item = json.loads(line)
    except ValueError as error:
        raise InvalidItem(f"not JSON: {error}") from error
    if not isinstance(item, dict):
        raise InvalidItem("not a JSON object")
    if item.get("event_key") in (None, ""):
        raise InvalidItem("event_key is missing")
    item["payload"] = _payload(item)
    if isinstance(item.get("available_at"), str):
        try:
            item["available_at"] = datetime.fromisoformat(item["available_at"])
        except ValueError as error:
            raise InvalidItem(f"available_at: {error}") from error
    if not isinstance(item.get("options"), dict | None):
        raise InvalidItem("options must be an object")
    return item


def _payload(item: dict[str, Any]) -> str | bytes:
    encoded = item.pop("payload_base64", None)
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise InvalidItem(f"payload_base64: {error}") from error
    payload = item.get("payload")
    if payload is None:
        raise InvalidItem("payload is missing")
    return payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)


@contextmanager
def _opened(name: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """The lines and their size in bytes, where it is known."""
    if name == "-":
        yield sys.stdin.buffer, None
        return
    with Path(name).open("rb") as file:
        yield file, Path(name).stat().st_size
