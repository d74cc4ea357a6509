"""Logins that may change while a process runs: whoever makes a connection asks for the one in force."""

from __future__ import annotations

from collections.abc import Callable

Credentials = tuple[str | None, str]
"""User and password; without a user, that of the URL."""
Ask = Callable[[], Credentials]
"""Returns the credentials in force. Raises ``Unavailable`` if there is no password at the moment."""
