"""Asks a person before a command does what cannot be taken back."""

from __future__ import annotations

import sys

import typer

from boxengine.errors import BadUsage, BoxError


def refuse_without_terminal(action: str) -> None:
    """For a command that was called without ``--yes``.

    Raises:
        BadUsage: nobody is there to be asked.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadUsage(f"--yes is needed to {action} without a terminal; --dry-run counts")


def ask(question: str) -> None:
    """Asks on standard error, so that results can be piped.

    Raises:
        BoxError: the answer is no.
    """
    if not typer.confirm(question, err=True):
        raise BoxError("nothing was done")
