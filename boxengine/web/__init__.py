"""The HTTP side: probes and metrics, and the console, which needs the extra ``web``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from boxengine.app.boxes import Boxes
    from boxengine.web.console.access import Authenticate, Authentication


def app(
    boxes: Boxes | None = None,
    *,
    authenticate: Authenticate | None = None,
    authentication: Authentication | None = None,
    read_only: bool = False,
    allowed_hosts: Sequence[str] = (),
) -> Starlette:
    """The console, for mounting into an application: ``app.mount("/boxengine", boxengine.web.app(authenticate=...))``.

    Args:
        boxes: the configuration; None: read from the usual place, as ``boxengine.load()`` does.
        authenticate: called with each Starlette request; returns the user as a ``Who``, or as the name of somebody who may
            operate, or None or an empty name for nobody. It may be ``async``, and may raise FastAPI's ``HTTPException``.
        authentication: ``token``, ``basic`` or ``none``; None: as configured. Ignored with ``authenticate``.
        read_only: nobody may change anything.
        allowed_hosts: host names that browsers may use, in addition to the configured ones; with neither, any name works.

    Raises:
        BoxError: nobody could sign in, because there is neither ``authenticate`` nor a token.
        ConfigurationError: the configuration is wrong.
        ModuleNotFoundError: the extra is not installed: ``pip install 'boxengine[web]'``.
    """
    from boxengine.app.boxes import load  # noqa: PLC0415 - a worker's probes need none of this
    from boxengine.web.console.application import build  # noqa: PLC0415

    return build(
        boxes or load(),
        authenticate=authenticate,
        authentication=authentication,
        read_only=read_only,
        hosts=allowed_hosts,
    )
