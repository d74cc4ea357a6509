"""What all commands share: the global options, the configuration, and the output of results and notes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from boxengine.app.running.garbage import put_off

if TYPE_CHECKING:
    from rich.console import Console

    from boxengine.adapters.sql.jobs.store import SqlJobs
    from boxengine.app.assembly import Choices
    from boxengine.app.boxes import Boxes
    from boxengine.app.servers.connected import Servers
    from boxengine.domain.box import Box
    from boxengine.domain.jobs import JobBox
    from boxengine.engine.jobs.pipeline import JobPipeline


_PIPE_WIDTH = 10_000
"""More than any table has."""


@dataclass(frozen=True, slots=True)
class Globals:
    """The options before the command."""

    config: tuple[Path, ...] = ()
    env: str | None = None
    debug: bool = False
    log_format: str | None = None
    """None: as configured; the same holds for the level."""
    log_level: str | None = None

    def boxes(self) -> Boxes:
        """Loads the configuration and everything that it names.

        Raises:
            ConfigurationError: with every problem that was found.
        """
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)  # the user's own modules, as the configuration names them
        with put_off():
            from boxengine.app.boxes import load_for_worker  # noqa: PLC0415 - half a second that --help does not need

            return load_for_worker(list(self.config) or None, self.env)

    def configure_logs(self, boxes: Boxes | None = None) -> None:
        """Sets up logging to standard error, for commands that keep running; once the configuration is read, as it says.

        Loggers other than ours are configured only then, because the application's modules may set their own handlers.
        """
        from boxengine.adapters.telemetry import logs  # noqa: PLC0415 - see boxes
        from boxengine.settings.schema import LoggingSettings  # noqa: PLC0415

        configured = LoggingSettings() if boxes is None else boxes.resolved.settings.logging
        given = {"format": self.log_format, "level": self.log_level}
        chosen = configured.model_copy(update={key: value for key, value in given.items() if value is not None})
        logs.configure(format=chosen.format, level=chosen.level.upper(), process=boxes is not None)

    def arguments(self) -> list[str]:
        """The same options for a child process."""
        options = [part for path in self.config for part in ("--config", str(path))]
        options += ["--env", self.env] if self.env else []
        options += ["--debug"] if self.debug else []
        options += ["--log-format", self.log_format] if self.log_format else []
        return [*options, *(["--log-level", self.log_level] if self.log_level else [])]


def names_in(options: Sequence[str] | None) -> list[str]:
    """The box names of an option that may be repeated and may list several names."""
    return [name.strip() for each in options or () for name in each.split(",") if name.strip()]


def globals_of(context: typer.Context) -> Globals:
    """The global options of the running command."""
    found = context.find_root().obj
    return found if isinstance(found, Globals) else Globals()


def connect(boxes: Boxes, *, writes: bool = False, choices: Choices | None = None) -> Servers:
    """The servers of the configuration.

    Args:
        choices: what the command line overrides; a worker's connections are as many as its threads need.
        writes: whether a database that refuses writes counts as unreachable; commands that only read may use a standby.
    """
    with put_off():
        from boxengine.app.servers.connected import connect as connect_servers  # noqa: PLC0415 - see Globals.boxes

        settings = boxes.resolved.settings
        return connect_servers(settings if choices is None else choices.applied_to(settings), writes=writes)


def chosen(boxes: Boxes, name: str | None) -> list[Box]:
    """The outbox or inbox of this name, or all; none if the name belongs to a job box. A log's name stands for its
    subscriptions."""
    resolved = boxes.resolved
    if name is None:
        return [pipeline.box for pipeline in resolved.pipelines.values()]
    if name in resolved.logs:
        return [boxes.box(reader) for reader in resolved.readers(name)]
    return [] if name in resolved.jobs else [boxes.box(name)]


def jobs_chosen(boxes: Boxes, name: str | None) -> Mapping[str, JobPipeline]:
    """The job box of this name, or all; none if the name belongs to an outbox or an inbox."""
    jobs = boxes.resolved.jobs
    return jobs if name is None else {name: jobs[name]} if name in jobs else {}


def job_boxes(boxes: Boxes, name: str | None) -> tuple[list[JobBox], dict[str, type]]:
    """The chosen boxes of long jobs, and the users' classes among their models."""
    pipelines = jobs_chosen(boxes, name).values()
    return [each.box for each in pipelines], {each.box.name: each.model for each in pipelines if each.model is not None}


def connect_to_jobs(boxes: Boxes) -> SqlJobs:
    """The store of long jobs, for commands that inspect or change them."""
    from boxengine.app.jobs.connecting import connect_jobs  # noqa: PLC0415 - see Globals.boxes

    return connect_jobs(boxes.resolved.settings, boxes.resolved.jobs, threads=False)


def models(boxes: Boxes, names: Sequence[Box]) -> list[type]:
    """The users' classes among the boxes' models."""
    found = [boxes.pipeline(box.name).model for box in names]
    return [model for model in found if model is not None]


def print_json(value: Any) -> None:
    """Prints one value as JSON to standard output."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:  # a lone surrogate, or a terminal that is not of UTF-8: JSON has escapes for both
        text = json.dumps(value, default=str)
    sys.stdout.write(f"{text}\n")


def say(text: str) -> None:
    """Prints a text to standard output as it is."""
    sys.stdout.write(f"{text}\n")


def width() -> int:
    """Characters per line of the terminal; for a pipe, enough for every column."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return _PIPE_WIDTH if piped else shutil.get_terminal_size().columns


def output() -> Console:
    """The console for results; for a pipe, wide enough for every column. It shows ``:a:`` in a key as it is."""
    from rich.console import Console  # noqa: PLC0415 - a tenth of a second that `start` does not need

    piped = not sys.stdout.isatty()
    width = _PIPE_WIDTH if piped and "COLUMNS" not in os.environ else None
    return Console(highlight=False, emoji=False, soft_wrap=piped, width=width)


def notes() -> Console:
    """The console for progress and remarks, on standard error, to keep results apart. In a file, each remark is one line."""
    from rich.console import Console  # noqa: PLC0415 - see output

    return Console(stderr=True, highlight=False, emoji=False, soft_wrap=not sys.stderr.isatty())
