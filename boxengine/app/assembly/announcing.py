"""What a worker says about itself while it lives."""

from __future__ import annotations

import os
import socket

from boxengine.app.assembly.ground import Ground
from boxengine.app.running.loops import JobLoops
from boxengine.ports import WorkerInfo
from boxengine.version import __version__


def announced(ground: Ground, jobs: JobLoops) -> WorkerInfo:
    """The part that stays the same."""
    return WorkerInfo(
        id=ground.token,
        host=socket.gethostname(),
        pid=os.getpid(),
        boxes=tuple(box.name for box in ground.boxes),
        threads=(ground.threads if ground.boxes else 0) + jobs.threads,
        started_at=ground.clock.now(),
        version=__version__,
        job_boxes=jobs.boxes,
    )
