"""The OpenAPI document is that of the API, and whatever is sent by it or against it, nothing breaks."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from starlette.routing import Route

from boxengine.web.console.openapi import described
from tests.web.console.conftest import Console

ROUNDS = 12
STRANGE: list[Any] = ["", " ", "0", "-1", "9" * 30, "ü", "\x00", "\u202e", "{}", "[]", "null", "true", "1,2,,3", "P1Y"]
STRANGE += ["' OR 1=1 --", "%", "../..", "x" * 300, "2026-01-31T12:00", "P" + "9" * 200 + "Y", "1e9", "\u0661"]
VALUES: list[Any] = [None, True, 0, -1, 1.5, 2**70, [], {}, [[]], [None], {"a": 1}, *STRANGE]


def test_every_route_of_the_api_is_described_and_nothing_else(job_console: Console) -> None:
    routes = {
        (route.path, method.lower())
        for route in job_console.app.routes
        if isinstance(route, Route) and route.path.startswith(("/api/", "/health", "/status"))
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert {(path, method) for path, methods in described()["paths"].items() for method in methods} == routes
    assert job_console.client().get("/api/openapi.json").json["openapi"] == "3.1.0"


def test_strange_requests_get_an_answer_that_is_described(job_console: Console) -> None:
    """A short run with a fixed seed; the long one is for schemathesis."""
    ids = job_console.create(count=5)
    job_console.fail(ids[0])
    job_console.create_job(args={"rows": 1})
    client, dice = job_console.client(), random.Random(16)
    for path, methods in described()["paths"].items():
        for method, operation in methods.items():
            for _ in range(ROUNDS):
                url, body = _request(path, operation, dice, ids)
                answer = client.call(method.upper(), url, body=body, headers={"content-type": "application/json"})
                assert str(answer.status) in operation["responses"], (method, url, body, answer.text)
                assert answer.status != 503, (method, url, body, answer.text)
                if answer.status >= 400:
                    assert answer.json["error"].endswith("."), answer.text


def _request(path: str, operation: Mapping[str, Any], dice: random.Random, ids: list[int]) -> tuple[str, bytes]:
    good = {
        "box": ["order-outbox-item", "payment-inbox-item"],
        "item": list(map(str, ids)),
        "action": ["retry", "discard"],
        "job_id": ["report-job:1", "report-job:2"],
    }
    query: list[tuple[str, Any]] = []
    for parameter in operation["parameters"]:
        name, schema = parameter["name"], parameter["schema"]
        if parameter["in"] == "path":
            value = dice.choice(good.get(name, ["x"]) + ([] if dice.random() < 0.7 else STRANGE[2:5]))
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        elif dice.random() < 0.4:
            query += [(name, _value(schema, dice)) for _ in range(dice.choice([1, 1, 2]))]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    sent = json.dumps(_value(body, dice)).encode() if body else b""
    return path + (f"?{urlencode(query)}" if query else ""), sent


def _value(schema: Mapping[str, Any], dice: random.Random) -> Any:
    if dice.random() < 0.25:
        return dice.choice(VALUES)
    match schema.get("type"):
        case "object":
            return {name: _value(of, dice) for name, of in schema.get("properties", {}).items() if dice.random() < 0.6}
        case "array":
            return [_value(schema["items"], dice) for _ in range(dice.randrange(3))]
        case "integer":
            return dice.choice([schema.get("minimum", 0), schema.get("maximum", 10), 3])
        case "boolean":
            return dice.random() < 0.5
        case _:
            return dice.choice(schema.get("enum", STRANGE))
