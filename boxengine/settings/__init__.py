"""The configuration: YAML in, frozen validated settings out, all errors at once.

``load`` reads and validates; ``resolve`` imports what the settings name and makes the boxes of it;
``load_and_resolve`` does both and reports the mistakes of both together; ``load_for_creating`` leaves out what only a
worker needs. In the order of the work:

1. ``files`` (which files, their form), ``merge`` (one tree, environment variables, where each value came from: ``origin``),
   ``job_environment`` (variables of other services' names). ``loading`` puts it all together.
2. ``schema`` with ``boxes`` and ``jobs`` (every key), ``values`` and ``durations`` (what one may be), ``diagnosis``
   (Pydantic's errors in the words of the file).
3. ``rules`` (contradictions), with ``job_rules``, ``source_rules``, ``subscription_rules``, ``passwords`` and ``drivers`` (of
   databases); ``doubts`` (what works but is probably not meant).
4. ``dotted_paths`` and ``resolution`` (what they lead to), ``transports`` (with ``transport_names``, ``arguments`` and
   ``kafka_arguments``), ``call_shapes`` (whether users' code can be called).

``explanation`` and ``descriptions`` are for ``config show`` and ``config schema``, ``contracts`` for ``boxengine new contract``.
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
