"""The transport that needs no server: JSON lines, appended to one file.

Line by line: ``{"id", "uuid", "event_name", "event_key", "bucket", "headers", "options", "payload"}``; a payload that
is not UTF-8 text stands, in base64, under ``payload_base64`` instead.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from boxengine.adapters.serializers import to_json
from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.errors import BoxError, Unavailable

_BEGINNING = b'{"id":'
"""Of each line."""
_PIECE = 1 << 16
"""Bytes read at once in search of a line's beginning."""


class FileTransport:
    """Appends items to ``path`` and counts them as delivered once they are on the disk.

    Threads share one handle; processes may append to the same file, because a batch is one write to a handle opened
    for appending, under the file's lock. A file that was moved away (log rotation) is opened anew. A batch that could
    not be written whole is taken back, so that no reader finds half a line; the next batch takes back what a killed process left.
    A disk that is full, or a path that cannot be written, costs no attempt.

    Args:
        path: the file; it and its folders are made at the first delivery.
        fsync: whether a batch waits for the disk. Without it a power cut may lose what counts as delivered.

    Raises:
        BoxError: the path is empty, or a folder's.
    """

    def __init__(self, *, path: str | Path, fsync: bool = True) -> None:
        _demand_name(path)
        self._path = Path(path)
        self._fsync = fsync
        self._lock = Lock()
        self._handle: int | None = None

    @staticmethod
    def checks(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], object]]]:
        """What shows that an argument is wrong before the transport is made; see ``boxengine.settings.transports``."""
        yield "path", partial(_demand_name, arguments["path"])

    def __call__(self, item: Item, payload: Any) -> Failure | None:
        return self.call_batch([item._replace(payload=payload)])[0]

    def call_batch(self, items: Sequence[Item]) -> list[Failure | None]:
        results: list[Failure | None] = [None] * len(items)
        lines: list[bytes] = []
        for index, item in enumerate(items):
            try:
                lines.append(line(item))
            except (TypeError, ValueError) as error:
                results[index] = Failure(f"cannot be written as JSON: {error}")
        if lines:
            try:
                with self._lock:
                    self._append(b"".join(lines))
            except OSError as error:
                raise Unavailable(f"file: {self._path} cannot be written: {error.strerror}") from error
        return results

    def close(self) -> None:
        """Closes the file; a later delivery opens it again."""
        with self._lock:
            self._release()

    def _append(self, data: bytes) -> None:
        handle = self._opened()
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            end = _whole(handle)
            try:
                write_all(handle, data)
                if self._fsync:
                    os.fsync(handle)
            except OSError:
                os.ftruncate(handle, end)
                raise
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)

    def _opened(self) -> int:
        if self._handle is not None and self._moved(self._handle):
            self._release()
        if self._handle is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self._path, os.O_APPEND | os.O_CREAT | os.O_RDWR, 0o644)
        return self._handle

    def _moved(self, handle: int) -> bool:
        try:
            return not os.path.samestat(os.fstat(handle), self._path.stat())
        except FileNotFoundError:
            return True

    def _release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _demand_name(path: str | Path) -> None:
    if not str(path).strip() or str(path).endswith(("/", "/.", "/..")) or str(path) in {".", ".."}:
        raise BoxError(f"file: path {str(path)!r}: expected the name of a file, such as items.jsonl")


def _whole(handle: int) -> int:
    """The file's size, without the part of a line that a process left when it was killed.

    That item was not settled, and comes again. A last line that is not ours gets its newline.
    """
    size = os.fstat(handle).st_size
    if not size or os.pread(handle, 1, size - 1) == b"\n":
        return size
    begin = _last_line(handle, size)
    found = os.pread(handle, len(_BEGINNING), begin)
    if _BEGINNING.startswith(found):
        os.ftruncate(handle, begin)
        return begin
    write_all(handle, b"\n")
    return size + 1


def _last_line(handle: int, size: int) -> int:
    """Where the last line begins."""
    end = size
    while end:
        begin = max(0, end - _PIECE)
        newline = os.pread(handle, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def write_all(handle: int, data: bytes) -> None:
    """One ``write`` where the system takes all at once, as it does short of signals and full disks."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def line(item: Item) -> bytes:
    """The item as one line of JSON, with its newline."""
    record: dict[str, Any] = {
        "id": item.id,
        "uuid": item.uuid,
        "event_name": item.event_name,
        "event_key": item.event_key,
        "bucket": item.bucket,
        "headers": item.headers,
        "options": item.options,
    }
    payload = to_json(item.payload)
    try:
        record["payload"] = None if payload is None else payload.decode()
    except UnicodeDecodeError:
        record["payload_base64"] = base64.b64encode(payload or b"").decode()
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
