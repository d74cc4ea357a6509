"""Items on a terminal and as JSON. Nothing in an item can control the terminal."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from boxengine.cli.text import aligned, printable, wrapped
from boxengine.domain.error_logs import line_of_reason
from boxengine.domain.item import rfc3339
from boxengine.domain.legible import legible
from boxengine.ports import ItemRow
from boxengine.ports.people.items import status_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

HEX_PREVIEW = 256
"""The most bytes shown of a payload that is not text."""
_HEX_LINE = 16
_HEAD = ("id", "status", "event_key", "event_name", "bucket", "errors", "created_at", "processed_at", "reason")
_WIDEST = 100_000
"""Characters; more than a row ever has."""
_LONGEST_REASON = 60
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z ")


def listing(rows: list[ItemRow], console: Console) -> Table | Text:
    """One line per item; if the terminal is too narrow for that, a few lines, so that nothing is cut off."""
    from rich.measure import Measurement  # noqa: PLC0415 - see context.output
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(*_HEAD)
    for row in rows:
        table.add_row(*map(Text, _cells(row)))
    needed = Measurement.get(console, console.options.update_width(_WIDEST), table).maximum
    return table if needed <= console.width else Text("\n".join(_narrow(row, console.width) for row in rows))


def _cells(row: ItemRow) -> list[str]:
    cells = (
        str(row.id),
        status_name(row.status),
        row.event_key,
        row.event_name or "-",
        str(row.bucket),
        str(row.errors_count),
        _moment(row.created_at),
        _moment(row.processed_at),
        _reason(row.error_log),
    )
    return list(map(printable, cells))


def _narrow(row: ItemRow, width: int) -> str:
    id_, status, *rest, reason = _cells(row)
    told = ", ".join(f"{name} {cell}" for name, cell in zip(_HEAD[2:-1], rest, strict=True) if cell != "-")
    lines = [f"{id_} {status}", f"  {told}", *([f"  {reason}"] if reason else [])]
    return "\n".join(wrapped(line, width) for line in lines)


def details(row: ItemRow) -> str:
    """One item, with one field per line, then its error log and its payload."""
    fields = []
    for name, value in as_json(row).items():
        if name != "error_log":
            shown = "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            fields.append((name, printable(shown)))
    parts = aligned(fields, right=(False, False))
    if row.error_log:
        parts += ["", "error_log", printable(row.error_log, lines=True)]
    payload = row.payload or b""
    return "\n".join([*parts, "", f"payload ({len(payload)} bytes)", _payload(payload)])


def as_json(row: ItemRow, *, whole: bool = False) -> dict[str, Any]:
    """The item as JSON values; with ``whole`` also its payload, under the keys that ``create --jsonl`` takes."""
    values = asdict(row)
    payload = values.pop("payload")
    values["status"] = status_name(row.status)
    for name, value in values.items():
        if isinstance(value, datetime):
            values[name] = rfc3339(value)
    if whole:
        text = as_text(payload or b"")
        values |= {"payload_base64": base64.b64encode(payload).decode()} if text is None else {"payload": text}
    return values


def as_text(payload: bytes) -> str | None:
    """The payload as text; None if it is not UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def _payload(payload: bytes) -> str:
    text = as_text(payload)
    if text is not None and legible(text) and "\r" not in text.replace("\r\n", ""):
        return text
    lines = [
        f"{start:08x}  {payload[start : min(start + _HEX_LINE, HEX_PREVIEW)].hex(' '):<47}"
        for start in range(0, min(len(payload), HEX_PREVIEW), _HEX_LINE)
    ]
    rest = len(payload) - HEX_PREVIEW
    return "\n".join([*lines, *([f"... and {rest} more bytes; --json has them all"] if rest > 0 else [])])


def _reason(log: str | None) -> str:
    """The essential part of an error log: the line with the reason, without the time."""
    first = _TIME.sub("", line_of_reason(log or ""))
    return first if len(first) <= _LONGEST_REASON else f"{first[: _LONGEST_REASON - 1]}…"


def _moment(moment: datetime | str | None) -> str:
    if isinstance(moment, datetime):
        return moment.strftime("%Y-%m-%d %H:%M:%S")
    return moment or "-"
