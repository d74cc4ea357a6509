"""The OpenAPI document of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from boxengine.domain.item import Status
from boxengine.ports.people.history import Span
from boxengine.version import __version__
from boxengine.web.console.acting import DONE, Polling
from boxengine.web.console.answers import Json
from boxengine.web.console.calls import Call
from boxengine.web.console.openapi_jobs import job_paths
from boxengine.web.console.openapi_parts import LIST, OBJECT, PERIOD, TEXT, does
from boxengine.web.console.parsing import LARGEST_ID, LARGEST_PAGE, MOST_IDS
from boxengine.web.console.replaying import MOST_OPTIONS

_ID = {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}
_STATUS = {"type": "string", "enum": [status.name.lower() for status in Status]}
_FILTER: Mapping[str, Any] = {
    "status": {"type": "array", "items": _STATUS, "minItems": 1},
    "id": {"type": "array", "items": _ID, "minItems": 1, "maxItems": MOST_IDS},
    "key": TEXT,
    "event_name": TEXT,
    "uuid": {"type": "string", "format": "uuid"},
    "error": {**TEXT, "description": "text in the error log"},
    **PERIOD,
}
_PAGE: Mapping[str, Any] = {
    "before": {**_ID, "description": "rows with smaller ids, the nearest of them"},
    "after": {**_ID, "minimum": 0, "description": "rows with larger ids, the nearest of them"},
    "limit": {"type": "integer", "minimum": 1, "maximum": LARGEST_PAGE, "default": 50},
}
_ACTIONS = [str(action) for action in DONE]
_REPLAY = {
    "type": "object",
    "additionalProperties": False,
    "description": "how a replay is meant",
    "properties": {
        "transport": {**TEXT, "description": "to this transport of the box alone"},
        "event_name": {**TEXT, "description": "gives the copies this event name"},
        "options": {
            "type": "object",
            "maxProperties": MOST_OPTIONS,
            "additionalProperties": TEXT,
            "description": "set in the copies' options",
        },
        "same_key": {"type": "boolean", "default": False, "description": "keeps the Idempotency-Key"},
        "overtake": {
            "type": "boolean",
            "default": False,
            "description": "sends the items themselves, before live items of their keys",
        },
    },
}
_ACT = {
    "type": "object",
    "required": ["action"],
    "additionalProperties": False,
    "properties": {
        "action": {"type": "string", "enum": _ACTIONS},
        "filter": {"type": "object", "additionalProperties": False, "properties": _FILTER},
        "dry_run": {"type": "boolean", "default": False, "description": "only count"},
        "replay": _REPLAY,
    },
}
_COUNT = {"type": "object", "additionalProperties": False, "properties": {"filter": _ACT["properties"]["filter"]}}  # type: ignore[index] # it has them
_BOX = {"box": {"type": "string", "description": "the name with dashes: order-outbox-item"}}
_ITEM = {**_BOX, "item": _ID}
_JOB = {"job": {"type": "string"}}


def document(call: Call) -> Response:
    """The document itself."""
    return Json(described(call.url("")))


def described(server: str = "") -> dict[str, Any]:
    """The whole API.

    Args:
        server: the URL of the console.
    """
    return {
        "openapi": "3.1.0",
        "info": {"title": "boxengine console", "version": __version__},
        "servers": [{"url": server or "/"}],
        "security": [{"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
            },
        },
        "paths": _paths(),
    }


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = {
        "/api/overview": {"get": does("What is wrong, all boxes, all workers", OBJECT)},
        "/api/boxes": {"get": does("All boxes", LIST)},
        "/api/boxes/{box}": {"get": does("One box, of items or of long jobs", OBJECT, path=_BOX)},
        "/api/boxes/{box}/history": {
            "get": does(
                "What happened lately", OBJECT, path=_BOX, query={"span": {"type": "string", "enum": list(Span)}}
            )
        },
        "/api/boxes/{box}/log": {
            "get": does(
                "What waits in the log, by bucket, or the next items of one bucket",
                OBJECT,
                path=_BOX,
                query={"bucket": {"type": "integer", "minimum": 0}, "limit": _PAGE["limit"]},
            )
        },
        "/api/boxes/{box}/items": {"get": does("A page of items", OBJECT, path=_BOX, query={**_FILTER, **_PAGE})},
        "/api/boxes/{box}/items/count": {
            "get": does("How many, up to 10,000", OBJECT, path=_BOX, query=_FILTER),
            "post": does("Count exactly, in the background", OBJECT, path=_BOX, body=_COUNT, begins=True),
        },
        "/api/boxes/{box}/items/{item}": {"get": does("One item, whole, and why it waits", OBJECT, path=_ITEM)},
        "/api/boxes/{box}/items/{item}/{action}": {
            "post": does(
                "Act on one item",
                OBJECT,
                path={**_ITEM, "action": {"type": "string", "enum": _ACTIONS}},
                body={"type": "object", "additionalProperties": False, "properties": {"replay": _REPLAY}},
                begins=True,
            )
        },
        "/api/boxes/{box}/actions": {
            "post": does("Act on all items of a filter, or count them", OBJECT, path=_BOX, body=_ACT, begins=True)
        },
        "/api/jobs/{job}": {"get": does("How far an action is", OBJECT, path=_JOB)},
        "/api/jobs/{job}/cancel": {"post": does("End an action after its batch", OBJECT, path=_JOB)},
        "/api/workers": {"get": does("Worker processes", LIST)},
        "/api/doctor": {"get": does("What hurts in production, and what to do", LIST)},
        "/api/trail": {
            "get": does(
                "Who did what",
                LIST,
                query={"limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 50}},
            )
        },
        "/api/openapi.json": {"get": does("This document", OBJECT)},
    }
    for polling in Polling:
        paths[f"/api/boxes/{{box}}/{polling}"] = {"post": does(f"{polling.capitalize()} a box", OBJECT, path=_BOX)}
    paths |= job_paths(_PAGE)
    for side in ("outbox", "inbox"):
        paths |= _of_reference(side)
    return paths


def _of_reference(side: str) -> dict[str, Any]:
    own = {"type": "object", "required": ["polling_enabled"], "properties": {"polling_enabled": {"type": "boolean"}}}
    body = {"type": "object", "required": [f"{side}_class"], "properties": {f"{side}_class": own}}
    return {
        f"/api/{side}_classes": {"get": does("As sbmt-outbox lists them, with X-Total-Count", LIST)},
        f"/api/{side}_classes/{{box}}": {
            "get": does("As sbmt-outbox shows it", OBJECT, path=_BOX),
            "put": does("Pause or resume, as in sbmt-outbox", OBJECT, path=_BOX, body=body),
            "delete": does("Forget a pause, as in sbmt-outbox", {}, path=_BOX),
        },
    }
