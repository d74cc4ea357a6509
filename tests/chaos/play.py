"""Plays one fault from the first commit to the verdict."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import timing
from tests.chaos.checker import Findings, judge
from tests.chaos.fault import Fault
from tests.chaos.report import Row
from tests.chaos.stage import ORDERS, Servers, Stage, staged
from tests.eventually import eventually

SLACK = 2.0
"""Seconds for which a batch may be in work: one of sending (``FLUSH_AFTER``) and one for a machine under load."""
DRAIN_PATIENCE = 60.0
"""Seconds for the last item to be delivered once no more come and no fault is there."""
SHOWN = 3
"""Sentences of each kind in a row; all are in the evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is played."""

    items: int
    """Committed at least, in each fault."""
    rate: float
    """Items per second while the faults go on."""
    seed: int
    most_times: int | None = None
    """Injections of each fault; None: as many as it asks for."""
    keep: bool = False
    """Logs and record stay, even if nothing was broken."""

    def times(self, fault: Fault) -> int:
        return fault.times if self.most_times is None else min(fault.times, self.most_times)


def play(name: str, fault: Fault, servers: Servers, folder: Path, plan: Plan, *, until: float | None = None) -> Row:
    """Injects the fault, lets the workers finish, and judges.

    Args:
        folder: new; holds configuration, logs and record, and stays only if something was broken.
        until: monotonic time after which the fault is injected no more, once it has come as often as it must.
    """
    began = time.monotonic()
    randomness = random.Random(f"{plan.seed} {name}")
    with staged(
        folder, servers, items=plan.items, rate=plan.rate, randomness=randomness, transports=fault.transports
    ) as stage:
        problems = _perform(stage, fault, times=plan.times(fault), until=until)
        row = _judged(name, fault, stage, problems, seconds=time.monotonic() - began)
        if row.broken or plan.keep:
            _keep_evidence(stage, row)
        else:
            shutil.rmtree(folder)
    return row


def _perform(stage: Stage, fault: Fault, *, times: int, until: float | None) -> list[str]:
    """What went wrong on the way, one sentence each."""
    problems = []
    try:
        fault.hire(stage)
        stage.crew.wait_until_started()
        with stage.feed, fault.around(stage):
            for number in range(times):
                if until is not None and number >= fault.least and time.monotonic() > until:
                    break
                fault.inject(stage)
                stage.crew.look_after()
            stage.feed.finish()
        eventually(lambda: stage.pending() == 0, patience=DRAIN_PATIENCE, what="nothing pending any more")
    except Exception as error:  # the other faults are still to be played
        problems.append(f"{type(error).__name__}: {error}")
    stage.crew.look_after()
    stage.crew.dismiss(*stage.crew.running)
    return [*problems, *stage.crew.problems, *tracebacks(stage.folder)]


def _judged(name: str, fault: Fault, stage: Stage, problems: Sequence[str], *, seconds: float) -> Row:
    attempts, injections = stage.attempts(), stage.injections
    rows = stage.rows()
    findings = judge(
        rows=rows,
        committed=stage.feed.commits,
        attempts=attempts,
        orders=ORDERS,
        injections=injections if fault.repeats else (),
        slack=SLACK,
        doomed=stage.doomed,
        touched=stage.touched,
    )
    return Row(
        fault=name,
        times=len(injections),
        items=len(rows),
        lost=len(findings.lost),
        reordered=len(findings.reordered),
        duplicates=findings.duplicates,
        in_work=findings.in_work,
        longest_stall=round(timing.longest_stall(attempts, stage.feed.commits), 2),
        recovery=_rounded(timing.recovery(attempts, stage.feed.commits, injections)),
        recovery_limit=fault.recovery_limit,
        note=fault.note,
        problems=(*problems, *_sentences(stage.folder, findings)),
        seconds=round(seconds, 1),
        evidence=str(stage.folder),
    )


def _keep_evidence(stage: Stage, row: Row) -> None:
    """Beside configuration, logs and record: when faults came and items were committed, in the record's time."""
    evidence = {
        "row": row.as_json(),
        "injections": [
            {"begin": each.begin, "end": each.end, "victims": sorted(each.victims or ())} for each in stage.injections
        ],
        "commits": [[box, id_, at] for (box, id_), at in stage.feed.commits.items()],
    }
    (stage.folder / "evidence.json").write_text(json.dumps(evidence))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _sentences(folder: Path, findings: Findings) -> list[str]:
    """The first few of each kind; all of them in the folder."""
    kinds = (findings.lost, findings.reordered, findings.unexplained)
    found = [sentence for kind in kinds for sentence in kind]
    if found:
        (folder / "findings").write_text("\n".join(found) + "\n")
    return [sentence for kind in kinds for sentence in kind[:SHOWN]]


def tracebacks(folder: Path) -> list[str]:
    """A server that is away is nobody's bug: a worker tells of it in one line. A traceback is something else."""
    logged = [
        (log.stem, line)
        for log in sorted(folder.glob("worker-*.log"))
        for line in log.read_text(errors="replace").splitlines()
        if "Traceback (most recent call last)" in line
    ]
    if not logged:
        return []
    where, line = logged[0]
    what = json.loads(line)["message"] if line.startswith("{") else "it ended with it"
    return [f"workers logged {len(logged)} tracebacks, the first is {where}'s: {what[:200]}"]
