"""Responses that can be sent whatever strangers have written into an item: a lone surrogate fits into no encoding."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse

_SHOWN = "backslashreplace"
"""A lone surrogate becomes its escape, which is JSON's own."""


class Json(JSONResponse):
    """A JSON document."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors=_SHOWN)


class Html(HTMLResponse):
    """A page."""

    def render(self, content: Any) -> bytes:
        return str(content).encode(errors=_SHOWN)
