"""Moments as people type them: ISO 8601, or how long ago."""

from __future__ import annotations

from datetime import UTC, datetime

import typer


def moment(text: str | None, *, option: str, now: datetime | None = None) -> datetime | None:
    """Parses ``2026-01-31``, ``2026-01-31T12:00``, ``2026-01-31T12:00:00+02:00`` (UTC without a zone), or ``PT1H``: an hour ago.

    Raises:
        typer.BadParameter: the text is neither a moment nor a duration.
    """
    from boxengine.settings.durations import parse  # noqa: PLC0415 - see Globals.boxes

    if text is None:
        return None
    try:
        if text.upper().startswith("P"):
            return (now or datetime.now(UTC)) - parse(text.upper())
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        expected = "expected a moment such as 2026-01-31T12:00Z, or how long ago, such as PT1H or P2D"
        raise typer.BadParameter(f"{expected}, got {text!r}", param_hint=option) from error
