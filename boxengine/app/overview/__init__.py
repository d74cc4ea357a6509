"""What people look at: how the boxes are, what is wrong, and why an item waits.

Command line and console draw what this says, each in its way, and decide nothing themselves.
"""

from boxengine.app.overview.job_boxes import JobBoxView, look_at_jobs
from boxengine.app.overview.job_waiting import JobReasons, job_reasons
from boxengine.app.overview.looking import BoxView, Lookout, Overview
from boxengine.app.overview.problems import Problem, Severity
from boxengine.app.overview.waiting import Reasons, reasons

__all__ = [
    "BoxView",
    "JobBoxView",
    "JobReasons",
    "Lookout",
    "Overview",
    "Problem",
    "Reasons",
    "Severity",
    "job_reasons",
    "look_at_jobs",
    "reasons",
]
