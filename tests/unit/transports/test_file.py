import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from boxengine.adapters.file import FileTransport
from boxengine.domain.outcome import Failure
from boxengine.errors import Unavailable
from tests.unit.transports.items import make_item


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "items.jsonl"


@pytest.fixture
def transport(path: Path) -> Iterator[FileTransport]:
    transport = FileTransport(path=path)
    yield transport
    transport.close()


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_holds_the_whole_item(transport: FileTransport, path: Path) -> None:
    item = make_item(3, options={"key": "42", "headers": {"x": "y"}})
    assert transport(item, "größe") is None
    (record,) = records(path)
    assert record == {
        "id": 3,
        "uuid": str(item.uuid),
        "event_name": "order_created",
        "event_key": "key-3",
        "bucket": 3,
        "headers": item.headers,
        "options": {"key": "42", "headers": {"x": "y"}},
        "payload": "größe",
    }


def test_a_payload_that_is_no_text_is_written_in_base64(transport: FileTransport, path: Path) -> None:
    transport(make_item(), b"\xff\x00")
    (record,) = records(path)
    assert base64.b64decode(record["payload_base64"]) == b"\xff\x00"
    assert "payload" not in record


def test_a_built_structure_is_written_as_json(transport: FileTransport, path: Path) -> None:
    transport(make_item(), {"total": 3})
    assert json.loads(records(path)[0]["payload"]) == {"total": 3}


def test_an_item_that_cannot_be_written_fails_alone(transport: FileTransport, path: Path) -> None:
    good, bad = make_item(1), make_item(2, payload={"a": object()})
    first, second, third = transport.call_batch([good, bad, good])
    assert first is third is None
    assert isinstance(second, Failure)
    assert "cannot be written as JSON" in second.reason
    assert [record["id"] for record in records(path)] == [1, 1]


def test_a_batch_waits_for_the_disk_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with_sync, without = FileTransport(path=path), FileTransport(path=path, fsync=False)
    with_sync.call_batch([make_item(number) for number in range(1, 51)])
    without.call_batch([make_item(number) for number in range(1, 51)])
    with_sync.close()
    without.close()
    assert len(synced) == 1
    assert len(records(path)) == 100


def test_a_batch_that_the_disk_refused_leaves_no_trace(
    transport: FileTransport, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport(make_item(1), b"one")

    def refuse(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(Unavailable, match=f"^file: {path} cannot be written: No space left on device$"):
            transport.call_batch([make_item(2), make_item(3)])
    transport(make_item(4), b"four")
    assert [record["id"] for record in records(path)] == [1, 4]


def test_a_path_that_cannot_be_opened_is_no_items_fault(path: Path) -> None:
    path.mkdir(parents=True)
    transport = FileTransport(path=path)
    with pytest.raises(Unavailable, match=f"^file: {path} cannot be written: Is a directory$"):
        transport(make_item(1), b"one")
    path.rmdir()
    assert transport(make_item(1), b"one") is None


@pytest.mark.parametrize("left", [b'{"id":2,"uuid":"' + b"x" * 200_000, b'{"i'], ids=["long", "short"])
def test_part_of_a_line_that_a_killed_process_left_is_taken_back(
    transport: FileTransport, path: Path, left: bytes
) -> None:
    transport(make_item(1), b"one")
    with path.open("ab") as file:
        file.write(left)
    transport(make_item(2), b"two")
    assert [each["id"] for each in records(path)] == [1, 2]


def test_part_of_a_line_alone_in_the_file_is_taken_back(transport: FileTransport, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"id":1,"uu')
    transport(make_item(1), b"one")
    assert [each["id"] for each in records(path)] == [1]


def test_a_last_line_of_somebody_else_gets_its_newline(transport: FileTransport, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"# by hand")
    transport(make_item(1), b"one")
    note, record = path.read_bytes().splitlines()
    assert (note, json.loads(record)["id"]) == (b"# by hand", 1)


def test_a_file_moved_away_is_opened_anew(transport: FileTransport, path: Path) -> None:
    transport(make_item(1), b"")
    path.rename(path.with_suffix(".1"))
    transport(make_item(2), b"")
    assert [record["id"] for record in records(path)] == [2]


def test_a_closed_transport_opens_the_file_again(transport: FileTransport, path: Path) -> None:
    transport(make_item(1), b"")
    transport.close()
    transport.close()
    transport(make_item(2), b"")
    assert [record["id"] for record in records(path)] == [1, 2]


def test_building_one_touches_no_file(path: Path) -> None:
    FileTransport(path=path).close()
    assert not path.parent.exists()


def test_threads_never_tear_each_others_lines(transport: FileTransport, path: Path) -> None:
    batches = [
        [make_item(thread * 100 + number, payload=b"x" * 3000) for number in range(20)] for thread in range(1, 9)
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(transport.call_batch, batches))
    written = [record["id"] for record in records(path)]
    starts = [written[index] for index in range(0, 160, 20)]
    assert sorted(starts) == [thread * 100 for thread in range(1, 9)]
    assert written == [start + number for start in starts for number in range(20)]


APPEND = """
import sys
from boxengine.adapters.file import FileTransport
from tests.unit.transports.items import make_item
transport = FileTransport(path=sys.argv[1], fsync=False)
for batch in range(50):
    transport.call_batch([make_item(int(sys.argv[2]), payload=b"x" * 5000)] * 10)
"""


def test_processes_never_tear_each_others_lines(path: Path) -> None:
    root = Path(__file__).parents[3]
    running = [subprocess.Popen([sys.executable, "-c", APPEND, str(path), number], cwd=root) for number in "123"]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    written = [record["id"] for record in records(path)]
    assert all(len(set(written[index : index + 10])) == 1 for index in range(0, 1500, 10))
    assert {number: written.count(number) for number in (1, 2, 3)} == {1: 500, 2: 500, 3: 500}
