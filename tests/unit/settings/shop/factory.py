"""A module that makes its transports itself."""

from __future__ import annotations

from tests.unit.settings.shop import Anything


class OutboxTransportFactory:
    @staticmethod
    def build(topic: str) -> Anything:
        return Anything(topic=topic, made_by="factory")
