"""Reports errors to Sentry: ``error_tracker: boxengine.adapters.telemetry.sentry.report``.

The application sets Sentry up (``sentry_sdk.init`` in one of its ``app`` modules); nothing is set up here.
"""

from __future__ import annotations

from typing import Any

try:
    import sentry_sdk
except ImportError as error:
    raise ImportError("the Sentry error tracker needs: pip install 'boxengine[sentry]'") from error

TAGS = ("box_name", "bucket", "where", "what", "topic")
"""What Sentry can be searched by; the rest of a report is shown beside it."""


def report(error: BaseException | str, /, **context: Any) -> None:
    """Sends an error, or a message, with everything known about it."""
    with sentry_sdk.new_scope() as scope:
        for name in TAGS:
            if context.get(name) is not None:
                scope.set_tag(f"boxengine.{name}", str(context[name]))
        scope.set_context("boxengine", {name: _plain(value) for name, value in context.items()})
        if isinstance(error, BaseException):
            scope.capture_exception(error)
        else:
            scope.capture_message(error, level="error")


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
