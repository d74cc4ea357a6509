"""A module whose code raises when it is imported."""

raise ZeroDivisionError("on purpose")
