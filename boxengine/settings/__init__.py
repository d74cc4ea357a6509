"""The configuration: YAML in, frozen validated settings out, all errors at once.

``load`` reads and validates; ``resolve`` imports what the settings name and makes the boxes of it;
``load_and_resolve`` does both and reports the mistakes of both together; ``load_for_creating`` leaves out what only a
worker needs. In the order of the work:
``files`` (which files, their form) -> ``merge`` (one tree, environment variables, where each value came from) ->
``schema``, ``boxes``, ``values`` (every key) -> ``rules`` (contradictions) -> ``resolution``, ``transports``.
"""

from boxengine.settings.doubts import notices
from boxengine.settings.drivers import drivers_of_applications
from boxengine.settings.explanation import Row, explain, json_schema
from boxengine.settings.loading import load
from boxengine.settings.resolution import Resolved, load_and_resolve, load_for_creating, resolve
from boxengine.settings.rules import check_for_worker
from boxengine.settings.schema import Settings

__all__ = [
    "Resolved",
    "Row",
    "Settings",
    "check_for_worker",
    "drivers_of_applications",
    "explain",
    "json_schema",
    "load",
    "load_and_resolve",
    "load_for_creating",
    "notices",
    "resolve",
]
