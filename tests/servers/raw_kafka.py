"""Writes records that no client library would accept: any bytes as key, value and header names, any timestamp.

It speaks just enough of Kafka's protocol with one broker: Produce, version 3, with record batches of format 2.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

_PRODUCE, _VERSION = 0, 3
_SECONDS = 30
_STARTED = int(time.time() * 1000)
_TRIES = 200
_NOT_YET = frozenset({3, 5, 6})
"""Error codes of a topic that is still being created: unknown, or without a leader."""


class RawRecord(NamedTuple):
    """One record, byte for byte."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp: int = _STARTED
    """Kafka reads it as milliseconds. The broker's retention would delete a record that is a week old."""


def write(bootstrap: str, topic: str, partition: int, records: Sequence[RawRecord]) -> None:
    """Writes one record batch, and raises ``AssertionError`` with the error code if the broker refuses it."""
    batch = _batch(records)
    code = _sent(bootstrap, topic, partition, batch)
    for _ in range(_TRIES):
        if code not in _NOT_YET:
            break
        threading.Event().wait(0.05)
        code = _sent(bootstrap, topic, partition, batch)
    assert code == 0, f"the broker refused the batch with error {code}"


def _sent(bootstrap: str, topic: str, partition: int, batch: bytes) -> int:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_SECONDS) as connection:
        connection.sendall(_request(topic, partition, batch))
        size = struct.unpack(">i", _exactly(connection, 4))[0]
        answer = _exactly(connection, size)
    # Correlation id, topics, the name, partitions, the partition's index.
    at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    return int(struct.unpack_from(">h", answer, at)[0])


def _request(topic: str, partition: int, batch: bytes) -> bytes:
    header = struct.pack(">hhi", _PRODUCE, _VERSION, 1) + _text("raw")
    body = struct.pack(">hhi", -1, -1, _SECONDS * 1000) + struct.pack(">i", 1) + _text(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return struct.pack(">i", len(header) + len(body)) + header + body


def _batch(records: Sequence[RawRecord]) -> bytes:
    first = records[0].timestamp
    last = max(record.timestamp for record in records)
    checked = struct.pack(">hiqqqhii", 0, len(records) - 1, first, last, -1, -1, -1, len(records))
    checked += b"".join(_record(number, record, first) for number, record in enumerate(records))
    tail = struct.pack(">ibI", -1, 2, _crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(tail)) + tail


def _record(number: int, record: RawRecord, first: int) -> bytes:
    body = b"\0" + _varint(record.timestamp - first) + _varint(number) + _sized(record.key) + _sized(record.value)
    body += _varint(len(record.headers))
    body += b"".join(_sized(name) + _sized(value) for name, value in record.headers)
    return _varint(len(body)) + body


def _sized(raw: bytes | None) -> bytes:
    return _varint(-1) if raw is None else _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = connection.recv(count - len(found))
        assert piece, "the broker closed the connection"
        found += piece
    return found


def _table() -> list[int]:
    table = []
    for number in range(256):
        crc = number
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
