"""The wheel in an environment that has boxengine's dependencies and no sources of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import boxengine
from boxengine.cli.kits import KITS
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("wheel")  # built once


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, which therefore has all that it takes."""
    folder = tmp_path_factory.mktemp("dist")
    build = "from hatchling import build; import sys; print(build.{}(sys.argv[1]))"
    _run([sys.executable, "-c", build.format("build_sdist"), str(folder)], cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    _run(["tar", "-xzf", str(sdist), "-C", str(folder)], cwd=folder)
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    _run([sys.executable, "-c", build.format("build_wheel"), str(folder)], cwd=unpacked)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``boxengine`` of a virtual environment into which the wheel was installed."""
    venv = tmp_path_factory.mktemp("venv")
    _run([sys.executable, "-m", "venv", "--without-pip", str(venv)], cwd=venv)
    (site,) = venv.glob("lib/python*/site-packages")
    # What boxengine depends on, without a download. Of that folder no .pth files are read, one of which leads to the sources.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "--disable-pip-version-check"]
    _run([*pip, "install", "--quiet", "--no-index", "--no-deps", "--force-reinstall", str(wheel)], cwd=venv)
    return venv / "bin" / "boxengine"


def _run(command: list[str], *, cwd: Path, **environ: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environ}, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_every_file_of_every_kit_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"boxengine/kits/{source}" for kit in KITS.values() for source in kit.values()}
    assert wanted <= names
    assert {name for name in names if name.startswith(("tests/", "docs/", "bench/"))} == set()
    assert {"boxengine/py.typed", "boxengine/web/templates/base.html"} <= names


def test_an_order_is_delivered_by_what_init_writes(
    clean: Path, tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    servers = {"DATABASE_URL": postgres_url, "REDIS_URL": redis_url}
    assert _run([str(clean), "--version"], cwd=tmp_path) == f"boxengine {boxengine.__version__}\n"
    _run([str(clean), "init", "--with", "compose"], cwd=tmp_path)
    assert f"boxengine[kafka,http,web]=={boxengine.__version__}" in (tmp_path / "requirements.txt").read_text()
    where = _run([str(clean.parent / "python"), "-c", "import boxengine; print(boxengine.__file__)"], cwd=tmp_path)
    assert where.startswith(str(clean.parents[1]))
    with (tmp_path / "outbox.yml").open("a") as file:
        file.write("probes: {enabled: false}\n")  # their port may be another test's
    _run([str(clean), "db", "create"], cwd=tmp_path, **servers)
    _run([str(clean), "create", "order_outbox_item", "--event-key", "1", "--payload", "hello"], cwd=tmp_path, **servers)
    printed = tmp_path / "printed"
    with printed.open("wb") as output:
        worker = subprocess.Popen([clean, "start"], cwd=tmp_path, env={**os.environ, **servers}, stdout=output)
    try:
        eventually(lambda: printed.read_text() == "1 hello\n")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0
    finally:
        worker.kill()
        worker.wait()


def test_a_generated_fastapi_application_passes_its_own_tests(clean: Path, tmp_path: Path) -> None:
    _run([str(clean), "init", "--with", "fastapi"], cwd=tmp_path)
    python = str(clean.parent / "python")
    printed = _run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"], cwd=tmp_path)
    assert "4 passed" in printed


def test_a_generated_django_project_passes_its_own_tests(clean: Path, tmp_path: Path, postgres_url: str) -> None:
    _run([str(clean), "init", "--with", "django"], cwd=tmp_path)
    python = str(clean.parent / "python")
    _run([python, "manage.py", "test"], cwd=tmp_path, DATABASE_URL=postgres_url)


def test_the_demo_runs(clean: Path, tmp_path: Path) -> None:
    assert "All promises kept." in _run([str(clean), "demo", "--items", "200"], cwd=tmp_path)
