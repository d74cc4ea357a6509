"""A module that needs another which is not installed."""

import no_such_distribution  # type: ignore[import-not-found]  # noqa: F401 - that it is missing is the point
