"""Which systems take part, in which versions, and how their environments are created."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
CACHE = Path.home() / ".cache" / "boxengine" / "peers"


@dataclass(frozen=True, slots=True)
class System:
    """One of the systems."""

    name: str
    program: str
    """In ``programs/``."""
    requirements: Sequence[str] = ()
    """Pinned packages; empty: this environment."""
    in_database: bool = True
    """Whether its messages are stored in PostgreSQL."""
    slow: bool = False
    """Whether a full drain would take minutes, so that it gets fewer messages."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Its additional environment variables."""

    def python(self) -> str:
        """The interpreter that runs it; creates its environment at the first use.

        Raises:
            CalledProcessError: the packages cannot be installed; pip's output is on standard error.
        """
        if not self.requirements:
            return sys.executable
        folder = CACHE / "_".join(self.requirements).replace("[", "-").replace("]", "").replace("==", "-")
        python = folder / "bin" / "python"
        done = folder / "installed"
        if not done.exists():
            venv.create(folder, with_pip=True, clear=True)
            options = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([str(python), *options, *self.requirements], check=True)
            done.touch()
        return str(python)


SYSTEMS = (
    System("boxengine", "boxengine_peer.py"),
    System("boxengine, storage: log", "boxengine_peer.py", settings={"BOX_STORAGE": "log"}),
    System("boxengine, long jobs", "boxengine_jobs_peer.py"),
    System("pgqueuer", "pgqueuer_peer.py", ("pgqueuer[asyncpg]==1.6.0",)),
    System("faststream-outbox", "faststream_outbox_peer.py", ("faststream-outbox[asyncpg]==0.19.0",)),
    System("procrastinate", "procrastinate_peer.py", ("procrastinate==3.10.0",), slow=True),
    System("dramatiq", "dramatiq_peer.py", ("dramatiq[redis]==2.2.1",), in_database=False),
)
