"""What people look at: the state of the boxes, what is wrong, and why an item waits.

The command line and the console only display these results, each in its own way; they decide nothing themselves.

``looking`` takes a look at all boxes, and ``job_boxes`` at those of long jobs; ``views`` are the results. ``problems`` puts
what is wrong into sentences, by the ``facts`` of each box: ``stuck`` items, and the ``lateness`` of its oldest one. ``waiting``
and ``job_waiting`` tell why one item or job waits. ``sparing`` and ``wait_once`` limit what looks cost; ``words`` has numbers
and durations.
"""

from boxengine.app.overview.facts import Problem, Severity
from boxengine.app.overview.job_boxes import JobBoxView, look_at_jobs
from boxengine.app.overview.job_waiting import JobReasons, job_reasons
from boxengine.app.overview.looking import Lookout
from boxengine.app.overview.views import BoxView, Overview
from boxengine.app.overview.waiting import Reasons, reasons, reasons_in_log, waiting_in_log

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
    "reasons_in_log",
    "waiting_in_log",
]
