"""Assembles a worker from its loops, over servers that are connected.

In reading order: ``choosing`` (which boxes), ``ground`` (what the loops share), ``polling``, ``delivering``,
``housekeeping`` (the loops), ``announcing`` (what a worker says about itself), ``workers`` (the whole, and the order in which
it stops). The loops of long jobs come from ``boxengine.app.jobs.loops``.
"""

from boxengine.app.assembly.choosing import Choices, choose, is_coordinated, refuse_no_boxes
from boxengine.app.assembly.workers import assemble, health

__all__ = ["Choices", "assemble", "choose", "health", "is_coordinated", "refuse_no_boxes"]
