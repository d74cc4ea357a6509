"""Templates and their filters: numbers, moments and durations in readable form."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from boxengine.app.overview.problems import reason_of
from boxengine.app.overview.words import lasting, number
from boxengine.domain.item import rfc3339
from boxengine.domain.legible import escaped
from boxengine.domain.masking import masked_text
from boxengine.ports import Count
from boxengine.ports.people.history import Happened
from boxengine.ports.people.items import status_name
from boxengine.version import __version__
from boxengine.web.console import job_showing
from boxengine.web.console.access import CSRF_FIELD
from boxengine.web.console.answers import Html
from boxengine.web.console.calls import Call
from boxengine.web.console.hiding import as_json

HERE = Path(__file__).parents[1]
STATIC = HERE / "static"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def page(call: Call, template: str, status: int = 200, **values: Any) -> Html:
    """A whole page."""
    return Html(_environment().get_template(template).render(call=call, **_shared(call), **values), status)


def fragment(call: Call, template: str, **values: Any) -> str:
    """The part of a page that live updates replace."""
    return _environment().get_template(template).render(call=call, **_shared(call), **values)


def _shared(call: Call) -> dict[str, Any]:
    token = call.site.access.csrf_token(call.visit)
    return {
        "site": call.site,
        "url": call.url,
        "csrf": Markup('<input type="hidden" name="{}" value="{}">').format(CSRF_FIELD, token),
        "version": __version__,
        "here": call.request.url.path.removeprefix(str(call.request.scope.get("root_path", ""))) or "/",
    }


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "advance": job_showing.advance,
        "bytes": _bytes,
        "count": lambda count: "–" if count is None else _short(count),
        "json": as_json,
        "lasting": lasting,
        "legible": escaped,
        "masked": _safe,
        "moment": _moment,
        "rate": lambda rate: "–" if rate is None else f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}",  # noqa: PLR2004
        "reason": lambda log: _safe(reason_of(log)) if log else "",
        "rfc3339": rfc3339,
        "short_time": _short_time,
        "status": status_name,
        "upper_first": _upper_first,
        "wait": _wait,
        "waits": _waits,
    }
    return environment


def _safe(text: str) -> str:
    """A sentence or a log in which strangers' words stand, without secrets and without what would reorder it."""
    return escaped(masked_text(text))


def _moment(moment: datetime | str | None) -> Markup:
    """A moment in UTC, until the page's script converts it to the reader's time zone."""
    if moment is None:
        return Markup("–")
    if isinstance(moment, str):
        return Markup("{}").format(moment)  # the database's own text, for a value that is not a moment
    return Markup('<time datetime="{}">{} UTC</time>').format(rfc3339(moment), moment.strftime("%Y-%m-%d %H:%M:%S"))


def _upper_first(text: str) -> str:
    """The text as the beginning of a sentence; Jinja's ``capitalize`` would lower the rest, and with it keys and names."""
    return text[:1].upper() + text[1:]


def _short(count: Count) -> str:
    return number(count).replace("over ", "> ").replace("about ", "~ ")


def _waits(lately: Happened | None) -> str:
    """The median and the 99th percentile: ``25 ms / 1 s``."""
    if lately is None or not lately.waits:
        return "–"
    return " / ".join(_wait(lately, share) for share in (0.5, 0.99))


def _wait(lately: Happened | None, share: float) -> str:
    wait = None if lately is None else lately.wait(share)
    return "–" if wait is None else _short_time(wait)


def _short_time(seconds: float) -> str:
    if seconds < 0.01:  # noqa: PLR2004 - whole milliseconds would be too coarse
        return f"{seconds * 1000:.2g} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.3g} s" if seconds < 60 else lasting(timedelta(seconds=seconds))  # noqa: PLR2004 - a minute


def _bytes(size: int | None) -> str:
    if size is None:
        return "–"
    amount, unit = float(size), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:  # noqa: PLR2004 - of bytes
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 or amount >= 10 else f"{amount:.1f} {_UNITS[unit]}"  # noqa: PLR2004 - two digits
