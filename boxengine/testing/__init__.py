"""What an application imports in its own tests: no servers, no worker, no waiting.

::

    from boxengine.testing import MemoryBoxes, RecordingTransport, make_item

    def test_a_transport_sends_the_payload():
        transport = Webhook(url="https://example.test")
        transport(make_item(payload=b"{}"), b"{}")

    def test_an_order_is_announced(boxes):                 # a fixture of the pytest plugin
        place_order(session, bicycle)
        assert boxes.emitted(OrderOutboxItem) == [{"event_name": "order_placed", "payload": {"what": "a bicycle"}}]
        boxes.drain()                                      # delivers what is due; raises what a transport raised

``MemoryBoxes`` keeps the items in memory; ``DatabaseBoxes`` finds them where the application wrote them, inside the
test's own transaction too. Both send through the worker's own engine: middlewares, retry strategies, strict order and
batches behave as they do in production. ``boxengine.testing.plugin`` has the pytest fixtures.

Inside: ``boxes`` (what both kinds can do), ``memory`` with ``undoing`` and ``sessions``, ``connected`` with ``outcomes``,
``draining`` (the engine, in the test's thread), ``emitted``, ``items``, ``recording``, ``clock``, ``plugin``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boxengine.testing.connected import DatabaseBoxes
    from boxengine.testing.draining import Drained, NotDelivered, Undelivered
    from boxengine.testing.emitted import Emitted
    from boxengine.testing.items import make_item
    from boxengine.testing.memory import MemoryBoxes
    from boxengine.testing.recording import RecordingTransport

__all__ = [
    "DatabaseBoxes",
    "Drained",
    "Emitted",
    "MemoryBoxes",
    "NotDelivered",
    "RecordingTransport",
    "Undelivered",
    "make_item",
]

_HOMES = {
    "boxengine.testing.connected": ("DatabaseBoxes",),
    "boxengine.testing.draining": ("Drained", "NotDelivered", "Undelivered"),
    "boxengine.testing.emitted": ("Emitted",),
    "boxengine.testing.items": ("make_item",),
    "boxengine.testing.memory": ("MemoryBoxes",),
    "boxengine.testing.recording": ("RecordingTransport",),
}


if not TYPE_CHECKING:  # type checkers would otherwise accept any name

    def __getattr__(name: str) -> Any:
        """Imports each of the names above when it is first used.

        pytest imports this package with the plugin, in every project of an environment that has boxengine.
        """
        for home, names in _HOMES.items():
            if name in names:
                return globals().setdefault(name, getattr(import_module(home), name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
