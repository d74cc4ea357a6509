"""The shipped Dockerfile, step by step in a clean Debian root, and a worker in it: ``make proof-image``."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.deployment.dockerfile import Stage, build
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
PACKAGES = "python3,python3-venv,python-is-python3,ca-certificates"


def debian(folder: Path) -> Path:
    """A root with Debian's Python, in place of the image ``python:3.13-slim``."""
    made = folder / "base"
    subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "trixie", made], check=True)
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    shutil.copy(certificates, made / certificates.relative_to("/"))
    return made


def wheel(base: Path) -> dict[str, str]:
    """Put boxengine's wheel into the root, where pip finds it; what pip needs to be told."""
    wheels = base / "wheels"
    wheels.mkdir(exist_ok=True)
    code = "from hatchling import build; import sys; build.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, wheels], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return {"PIP_FIND_LINKS": "/wheels", "PIP_CONSTRAINT": ""}


@contextmanager
def read_only(stage: Stage) -> Iterator[None]:
    """As ``docker run --read-only --tmpfs /tmp`` has it."""
    root = str(stage.root)
    with ExitStack() as stack:

        def mount(*arguments: str, at: str) -> None:
            subprocess.run(["mount", *arguments, at], check=True)
            stack.callback(subprocess.run, ["umount", "--lazy", at], check=True)

        mount("--bind", root, at=root)
        mount("-t", "tmpfs", "tmpfs", at=f"{root}/tmp")
        mount("--bind", "/dev", at=f"{root}/dev")
        subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
        yield


def deliver(stage: Stage, log: Path) -> None:
    """Make the tables, start the worker, have it deliver, ask for its health, and stop it."""
    boxengine = stage.entrypoint
    subprocess.run(stage.inside([*boxengine, "db", "create"]), check=True)
    subprocess.run(
        stage.inside([*boxengine, "create", "order_outbox_item", "--event-key", "1", "--payload", "hello"]), check=True
    )
    refused = subprocess.run(stage.inside(["touch", "/app/x"]), check=False, capture_output=True, text=True)
    assert "Read-only file system" in refused.stderr, refused.stderr
    who = subprocess.run(stage.inside(["id", "-u"]), check=True, capture_output=True, text=True).stdout
    assert who == "10001\n", who
    with log.open("w") as written:
        worker = subprocess.Popen(stage.inside([*boxengine, *stage.command]), stdout=written, stderr=written)
    try:
        eventually(lambda: "1 hello" in log.read_text().splitlines())
        subprocess.run(stage.inside(stage.health), check=True)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0, log.read_text()
    finally:
        worker.kill()
        worker.wait()
    assert subprocess.run(stage.inside(stage.health), check=False, capture_output=True).returncode == 1


def main() -> int:
    """Build, run, tell the size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, help="a Debian root with Python that is there already")
    asked = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise SystemExit("needs root, and debootstrap (Debian: apt-get install debootstrap)")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="boxengine-image-")))
        folder.chmod(0o755)  # the worker is not root
        context = folder / "context"
        context.mkdir()
        subprocess.run([sys.executable, "-m", "boxengine", "init", "--with", "docker"], cwd=context, check=True)
        base = asked.base or debian(folder)
        stage = build(context, base, folder, environ=wheel(base))
        postgres = stack.enter_context(EmbeddedPostgres(folder / "postgres", durable=False))
        valkey = stack.enter_context(EmbeddedValkey(folder / "valkey", durable=False))
        stage.environ |= {
            "DATABASE_URL": postgres.url("postgres"),
            "REDIS_URL": valkey.url(),
            "BOXENGINE_CONSOLE_TOKEN": "t" * 40,
        }
        with read_only(stage):
            deliver(stage, folder / "worker.log")
        size = subprocess.run(["du", "-sm", stage.root / "venv"], check=True, capture_output=True, text=True).stdout
    print(f"built, delivered, healthy, stopped; beyond its base the image has {size.split()[0]} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
