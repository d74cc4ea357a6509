"""What the probes find, as log lines: an orchestrator restarts the worker without keeping a probe's answer."""

from __future__ import annotations

import logging
import os

from boxengine.engine.running.health import HealthVerdict

logger = logging.getLogger("boxengine.worker")


def log_liveness(verdict: HealthVerdict) -> None:
    """For ``Health(turned=...)``."""
    if verdict.ok:
        logger.warning("liveness passes again: every loop makes progress")
    else:
        reasons = "; ".join(verdict.reasons)
        logger.error("liveness fails: %s; kill -USR1 %d logs what each thread is doing", reasons, os.getpid())


def log_silence(sentence: str) -> None:
    """For ``Health(silent=...)``."""
    logger.warning("readiness: %s", sentence)
