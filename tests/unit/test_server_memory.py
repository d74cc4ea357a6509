"""The servers' data lies in memory where there is room, and in the temporary folder elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.servers import memory


@pytest.mark.parametrize(
    ("free_there", "available", "chosen"),
    [
        pytest.param(memory.ROOM, memory.SPARE, True, id="room"),
        pytest.param(64 * 2**20, memory.SPARE, False, id="a small one, as in a container"),
        pytest.param(memory.ROOM, memory.SPARE - 2**10, False, id="little memory"),
        pytest.param(memory.ROOM, None, False, id="a kernel that does not tell"),
    ],
)
def test_data_lies_in_memory_where_there_is_room(
    free_there: int, available: int | None, chosen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free_there))
    told = tmp_path / "meminfo"
    told.write_text("MemTotal: 1 kB\n" if available is None else f"MemAvailable:   {available // 2**10} kB\n")
    assert memory.parent_of_data(tmp_path, told) == (tmp_path if chosen else None)


def test_without_shared_memory_data_lies_in_the_temporary_folder(tmp_path: Path) -> None:
    assert memory.parent_of_data(tmp_path / "missing") is None


def test_temporary_files_lie_there_until_the_end_and_others_may_enter(tmp_path: Path) -> None:
    before = (tempfile.gettempdir(), os.environ.get("TMPDIR"))
    with memory.temporary_files_in(tmp_path):
        folder = Path(tempfile.mkdtemp())
        assert folder.parent.parent == tmp_path
        assert os.environ["TMPDIR"] == str(folder.parent)
        assert folder.parent.stat().st_mode & 0o7777 == 0o1777
    assert not list(tmp_path.iterdir())
    assert (tempfile.gettempdir(), os.environ.get("TMPDIR")) == before


def test_without_room_in_memory_temporary_files_stay_where_they_were() -> None:
    before = tempfile.gettempdir()
    with memory.temporary_files_in(None):
        assert tempfile.gettempdir() == before
