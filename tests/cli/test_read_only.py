"""A worker needs no place to write to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from boxengine.adapters.sql.making import schema
from tests.cli.project import Project
from tests.eventually import eventually

DELIVER = """
class Deliver:
    def __call__(self, item, payload):
        return True
"""
READ_ONLY = """
for each in $(awk '{print $5}' /proc/self/mountinfo | sort -u); do
    mount -o remount,bind,ro "$each" 2>/dev/null
done
for folder in . "${TMPDIR:-/tmp}" /tmp /var/tmp; do
    if touch "$folder/probe" 2>/dev/null; then rm "$folder/probe"; exit 77; fi
done
exec "$0" -m boxengine start
"""
"""Of the shell's own copy of all mounts; ends with 77 where a folder is still writable."""


@pytest.fixture
def namespace() -> list[str]:
    command = ["unshare", "--map-root-user", "--mount"]
    try:
        subprocess.run([*command, "mount", "-o", "remount,bind,ro", "/"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine lets nobody make mounts of their own: {error}")
    return command


def test_a_worker_delivers_and_stops_where_every_folder_is_read_only(
    tmp_path: Path, postgres_url: str, redis_url: str, namespace: list[str]
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports="deliver.Deliver: {}")
    (tmp_path / "deliver.py").write_text(DELIVER)
    with project.engine() as engine:
        schema.create(engine, [project.boxes().box("order_outbox_item")])
    project.fill(200)
    before = sorted(tmp_path.rglob("*"))
    with subprocess.Popen([*namespace, "sh", "-c", READ_ONLY, sys.executable], cwd=tmp_path) as worker:
        try:
            eventually(lambda: worker.poll() is not None or project.counts() == {2: 200})
            worker.terminate()
            assert worker.wait(timeout=60) == 0
        finally:
            worker.kill()
    assert project.counts() == {2: 200}
    assert sorted(tmp_path.rglob("*")) == before
