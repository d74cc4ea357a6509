"""Finding rows that are due: the poller's turns, when they happen, and what keeps them from happening."""
