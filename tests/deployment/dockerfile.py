"""The steps of a Dockerfile, carried out in folders where no container engine is: each stage is a root of its own.

Understands what the shipped Dockerfile says, and refuses anything else.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from string import Template


@dataclass(slots=True)
class Stage:
    """A root folder, and what the steps so far say about a process in it."""

    root: Path
    environ: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"})
    folder: str = "/"
    user: str = "0"
    health: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def inside(self, command: Sequence[str], *, user: str | None = None) -> list[str]:
        """The program that runs a command in this root, with no right beyond that user's."""
        number = self.user if user is None else user
        given = [f"{name}={value}" for name, value in self.environ.items()]
        enter = f"cd {shlex.quote(self.folder)} && exec " + shlex.join(["env", *given, *command])
        who = ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", "--no-new-privs"]
        return ["chroot", str(self.root), *who, "sh", "-c", enter]


def steps(text: str) -> list[tuple[str, str]]:
    """Instructions and what follows them, without comments, each on one line."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1].strip()) for line in joined.splitlines()]


def build(context: Path, base: Path, folder: Path, *, environ: Mapping[str, str]) -> Stage:
    """Carry out the Dockerfile of a context; ``base`` stands for every image that FROM names.

    Args:
        context: the folder with the Dockerfile and .dockerignore.
        base: a root with Python.
        folder: where the stages' roots are made.
        environ: what a builder's machine adds for RUN alone: the package index, certificates.

    Returns:
        The last stage.
    """
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for instruction, rest in steps((context / "Dockerfile").read_text()):
        if instruction == "FROM":
            _, _, name = rest.partition(" AS ")
            stage = stages[name or str(len(stages))] = Stage(folder / (name or "last"))
            subprocess.run(["cp", "-a", str(base), str(stage.root)], check=True)
            continue
        assert stage is not None
        print(f"{instruction} {rest}", flush=True)
        _carry_out(stage, instruction, rest, context=context, stages=stages, environ=environ)
    assert stage is not None
    return stage


def _carry_out(
    stage: Stage,
    instruction: str,
    rest: str,
    *,
    context: Path,
    stages: Mapping[str, Stage],
    environ: Mapping[str, str],
) -> None:
    match instruction:
        case "RUN":
            subprocess.run(stage.inside(["sh", "-c", rest]), env={**os.environ, **environ}, check=True)
        case "COPY":
            _copy(stage, shlex.split(rest), context, stages)
        case "ENV":
            for word in shlex.split(rest):
                name, _, value = word.partition("=")
                stage.environ[name] = Template(value).substitute(stage.environ)
        case "WORKDIR":
            stage.folder = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case _:
            _note(stage, instruction, rest)


def _note(stage: Stage, instruction: str, rest: str) -> None:
    """What only a process that is started later needs."""
    match instruction:
        case "USER":
            stage.user = rest
        case "HEALTHCHECK":
            stage.health = json.loads(rest.partition("CMD ")[2])
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        case "CMD":
            stage.command = json.loads(rest)
        case "EXPOSE" | "STOPSIGNAL":
            pass
        case _:
            raise ValueError(f"{instruction} is not understood")


def _copy(stage: Stage, words: Sequence[str], context: Path, stages: Mapping[str, Stage]) -> None:
    *sources, target = words
    if sources[0].startswith("--from="):
        name, source = sources[0].removeprefix("--from="), sources[1]
        subprocess.run(["cp", "-a", str(stages[name].root / source.lstrip("/")), f"{stage.root}{target}"], check=True)
        return
    kept = _not_ignored(context)
    for pattern in sources:
        found = [path for path in kept if fnmatch(path.name, pattern)]
        assert found, f"COPY {pattern}: no such file in the context"
        for path in found:
            shutil.copy(path, stage.root / stage.folder.lstrip("/") / target / path.name)


def _not_ignored(context: Path) -> list[Path]:
    """What .dockerignore leaves of the context: the last pattern that fits says whether."""
    kept = []
    for path in sorted(each for each in context.iterdir() if each.is_file()):
        ignored = False
        for line in (context / ".dockerignore").read_text().splitlines():
            if fnmatch(path.name, line.lstrip("!")):
                ignored = not line.startswith("!")
        if not ignored:
            kept.append(path)
    return kept
