"""A program: what it says when it is imported ends the process."""

raise SystemExit(0)
