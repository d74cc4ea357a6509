"""Benchmarks: boxengine against floor programs, as ratios of medians of alternating rounds in one run."""
