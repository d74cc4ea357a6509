"""What people look at: how the boxes are, what is wrong, and why an item waits.

Command line and console draw what this says, each in its way, and decide nothing themselves.
"""

from boxengine.app.overview.looking import BoxView, Lookout, Overview
from boxengine.app.overview.problems import Problem, Severity
from boxengine.app.overview.waiting import Reasons, reasons

__all__ = ["BoxView", "Lookout", "Overview", "Problem", "Reasons", "Severity", "reasons"]
