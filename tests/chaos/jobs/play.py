"""Plays one fault from the first job to the verdict."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.jobs.checker import judge, reruns
from tests.chaos.jobs.faults import JobFault
from tests.chaos.jobs.report import Row
from tests.chaos.jobs.stage import LEASE, JobStage, staged
from tests.chaos.play import tracebacks
from tests.chaos.scene import Ground
from tests.eventually import eventually

RERUN_LIMIT = LEASE + 2.0
"""Seconds within which a killed worker's jobs run again."""
DRAIN_PATIENCE = 180.0
"""Seconds for the last job to end once no more come and no fault is there."""
SHOWN = 3
"""Sentences of each kind in a row; all are in the evidence."""
_REFUSED = "a job was lost before its end was recorded"
"""What a worker logs of a run that it lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is played."""

    jobs: int
    """Committed at least, in each fault."""
    rate: float
    """Jobs per second while the faults go on."""
    seed: int
    longest: float = 30.0
    """Seconds that a job takes at most."""
    workers: int = 3
    """Two of three have threads enough to take over what the third one leaves behind."""
    times: int | None = None
    """Injections of each fault; None: as many as it asks for."""
    keep: bool = False
    """Logs and record stay, even if nothing was broken."""


def play(name: str, fault: JobFault, servers: Ground, folder: Path, plan: Plan) -> Row:
    """Injects the fault, lets the workers finish, and judges.

    Args:
        folder: new; holds configuration, logs and record, and stays only if something was broken.
    """
    began = time.monotonic()
    randomness = random.Random(f"{plan.seed} {name}")
    with staged(folder, servers, jobs=plan.jobs, rate=plan.rate, longest=plan.longest, randomness=randomness) as stage:
        times = fault.times if plan.times is None else plan.times
        problems = _perform(stage, fault, workers=plan.workers, times=times)
        row = _judged(name, fault, stage, problems, seconds=time.monotonic() - began)
        if row.broken or plan.keep:
            _keep_evidence(stage, row)
        else:
            shutil.rmtree(folder)
    return row


def _perform(stage: JobStage, fault: JobFault, *, workers: int, times: int) -> list[str]:
    """What went wrong on the way, one sentence each."""
    problems = []
    try:
        for _ in range(workers):
            stage.crew.hire(fault.kind)
        stage.crew.wait_until_started()
        with stage.feed:
            for _ in range(times):
                fault.inject(stage)
                stage.crew.look_after()
            stage.feed.finish()
        eventually(lambda: stage.unfinished() == 0, patience=DRAIN_PATIENCE, what="no job unfinished any more")
    except Exception as error:  # the other faults are still to be played
        problems.append(f"{type(error).__name__}: {error}")
    stage.crew.look_after()
    stage.crew.dismiss(*stage.crew.running)
    return [*problems, *stage.crew.problems, *tracebacks(stage.folder)]


def _judged(name: str, fault: JobFault, stage: JobStage, problems: Sequence[str], *, seconds: float) -> Row:
    rows, effects = stage.rows(), stage.effects()
    committed = [id_ for _, id_ in stage.feed.commits]
    findings = judge(rows=rows, committed=committed, chunks=stage.chunks(), effects=effects)
    at_once = findings.at_once if fault.aware else []
    kinds = (findings.lost, at_once, findings.zombies)
    if any(kinds):
        (stage.folder / "findings").write_text("\n".join(sentence for kind in kinds for sentence in kind) + "\n")
    return Row(
        fault=name,
        times=len(stage.injections),
        jobs=len(rows),
        runs=len({(effect.job, effect.token) for effect in effects}),
        refused=_refused(stage.folder),
        lost=len(findings.lost),
        at_once=len(at_once),
        zombies=len(findings.zombies),
        unpreventable=findings.unpreventable,
        rerun=round(max(reruns(effects, stage.injections), default=0.0), 2) if fault.kills else None,
        rerun_limit=RERUN_LIMIT,
        note=fault.note,
        problems=(*problems, *(sentence for kind in kinds for sentence in kind[:SHOWN])),
        seconds=round(seconds, 1),
        evidence=str(stage.folder),
    )


def _refused(folder: Path) -> int:
    return sum(log.read_text(errors="replace").count(_REFUSED) for log in folder.glob("worker-*.log"))


def _keep_evidence(stage: JobStage, row: Row) -> None:
    """Beside configuration, logs and effects: when faults came, in the effects' time."""
    injections = [
        {"begin": each.begin, "end": each.end, "victims": sorted(each.victims or ())} for each in stage.injections
    ]
    (stage.folder / "evidence.json").write_text(json.dumps({"row": row.as_json(), "injections": injections}))
