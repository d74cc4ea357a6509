"""From settings to live objects: imports all that is named by dotted path, and checks that it can serve.

``whole`` puts it together. Each room adds what is wrong to one list, so that all mistakes are reported at once:
``named`` (what a dotted path names), ``models``, ``boxes`` (with their transports and strategies), ``sources`` (of inboxes),
``jobs``. ``resolved`` is what comes out. ``creating`` knows which values a process reads that only creates items.
"""

from boxengine.settings.resolution.resolved import Resolved
from boxengine.settings.resolution.whole import load_and_resolve, load_for_creating, resolve

__all__ = ["Resolved", "load_and_resolve", "load_for_creating", "resolve"]
