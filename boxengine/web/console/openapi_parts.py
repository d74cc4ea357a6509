"""One operation of the API in its OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boxengine.web.console.parsing import LONGEST_TEXT

OBJECT: Mapping[str, Any] = {"type": "object"}
LIST: Mapping[str, Any] = {"type": "array", "items": OBJECT}
TEXT: Mapping[str, Any] = {"type": "string", "maxLength": LONGEST_TEXT}
MOMENT: Mapping[str, Any] = {**TEXT, "description": "ISO 8601, UTC without a zone; or how long ago, such as PT1H"}
PERIOD: Mapping[str, Any] = {"from": MOMENT, "to": MOMENT}
"""When something was created: since, and before."""


def does(
    summary: str,
    answer: Mapping[str, Any],
    *,
    path: Mapping[str, Any] | None = None,
    query: Mapping[str, Any] | None = None,
    body: Mapping[str, Any] | None = None,
    begins: bool = False,
) -> dict[str, Any]:
    """An operation with this path, query, body and answer, and with every possible failure.

    Args:
        begins: whether the operation may continue after the answer.
    """
    parameters = [{"name": name, "in": "path", "required": True, "schema": of} for name, of in (path or {}).items()]
    parameters += [_in_query(name, of) for name, of in (query or {}).items()]
    failed = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    failures: Sequence[tuple[str, str]] = (
        ("400", "What was asked for makes no sense"),
        ("401", "No token, or a wrong one"),
        ("403", "The token is for looking only"),
        ("404", "There is no such thing"),
        ("409", "The action is not for such items, or the table cannot serve"),
        ("413", "The body is too large"),
        ("415", "The body is not JSON"),
        ("503", "A server does not answer"),
    )
    found: dict[str, Any] = {
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "As asked", "content": {"application/json": {"schema": answer}}},
            **(
                {"202": {"description": "It goes on", "content": {"application/json": {"schema": answer}}}}
                if begins
                else {}
            ),
            **{code: {"description": text, "content": failed} for code, text in failures},
        },
    }
    if body is not None:
        found["requestBody"] = {
            "required": bool(body.get("required")),
            "content": {"application/json": {"schema": body}},
        }
    return found


def _in_query(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    style = {"style": "form", "explode": True} if schema.get("type") == "array" else {}
    return {"name": name, "in": "query", "schema": schema, **style}
