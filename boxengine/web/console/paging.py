"""Lists that people leaf through: what was asked for, and the links to the neighbouring pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from boxengine.ports.people.inspection import Towards
from boxengine.web.console.calls import Call
from boxengine.web.console.parsing import PAGE, Page


def typed(call: Call, names: Sequence[str], *, looked_for: Collection[str]) -> dict[str, Any]:
    """The restrictions in the query as they were typed.

    Args:
        looked_for: those of the names that the field for a quick search offers.
    """
    query = dict(call.query)
    by, value = query.pop("by", ""), query.pop("q", "")
    if value and by in looked_for:
        query[by] = value
    return {name: query[name] for name in names if query.get(name)}


def links(
    call: Call,
    path: Callable[[Mapping[str, Any]], str],
    asked: Mapping[str, Any],
    wanted: Page,
    *,
    ids: Sequence[int],
    searched_to: int | None,
) -> dict[str, str | None]:
    """Links to the neighbouring pages; None: there is none on that side.

    Args:
        path: of the list under these restrictions.
        ids: of the page's rows, the newest first.
        searched_to: the id up to which the page was searched for; None: to the end of the table.
    """

    def to(**more: Any) -> str:
        limit = {} if wanted.limit == PAGE else {"limit": wanted.limit}
        return call.url(path({**asked, **limit, **more}))

    if wanted.towards is Towards.OLDER:
        older = None if searched_to is None else to(before=searched_to)
        newer = None if wanted.start is None else to(after=ids[0] if ids else wanted.start - 1)
    else:
        newer = None if searched_to is None else to(after=searched_to)
        older = to(before=ids[-1] if ids else (wanted.start or 0) + 1)
    return {"newest": to(), "newer": newer, "older": older, "oldest": to(after=0)}
