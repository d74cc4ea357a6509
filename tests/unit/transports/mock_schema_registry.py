"""A MOCK of Confluent's schema registry: the real protocol for registering and finding schemas, over HTTP, in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from tests.unit.transports.receiver import Receiver, Reply, Request, receiver

JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


class MockSchemaRegistry:
    """Gives each schema a number, and checks no compatibility."""

    def __init__(self, server: Receiver) -> None:
        self.url = f"http://127.0.0.1:{server.port}"
        self.subjects: dict[str, list[int]] = {}
        """Numbers of the schemas of each subject, in the order of their versions."""
        self._schemas: list[dict[str, Any]] = []
        server.reply = self._reply

    def _reply(self, request: Request) -> Reply:
        path = request.path.partition("?")[0]
        if request.method == "POST" and (found := re.fullmatch(r"/subjects/(.+)/versions", path)):
            return self._register(found[1], json.loads(request.body))
        if request.method == "GET" and (found := re.fullmatch(r"/schemas/ids/(\d+)", path)):
            return self._answer(200, self._schemas[int(found[1]) - 1])
        if request.method == "GET" and (found := re.fullmatch(r"/schemas/guids/([0-9a-f-]+)", path)):
            return self._answer(200, next(each for each in self._schemas if each["guid"] == found[1]))
        return self._answer(404, {"error_code": 40499, "message": f"no {request.method} {path} in this mock"})

    def _register(self, subject: str, schema: dict[str, Any]) -> Reply:
        known: dict[str, Any] = {key: schema[key] for key in ("schema", "schemaType") if key in schema}
        known["guid"] = str(uuid5(NAMESPACE_OID, schema["schema"]))
        if known not in self._schemas:
            self._schemas.append(known)
        number = self._schemas.index(known) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return self._answer(200, {"id": number, "version": versions.index(number) + 1, "subject": subject, **known})

    def _answer(self, status: int, body: dict[str, Any]) -> Reply:
        return status, JSON, json.dumps(body).encode()


@contextmanager
def mock_schema_registry() -> Iterator[MockSchemaRegistry]:
    """Runs as long as the block."""
    with receiver() as server:
        yield MockSchemaRegistry(server)
