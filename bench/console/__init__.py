"""What the console costs: many tabs over a large table under a worker at full speed (``python -m bench.console``)."""
