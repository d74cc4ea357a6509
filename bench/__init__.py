"""Benchmarks: boxengine against floor programs, as ratios of medians of alternating rounds in one run.

``python -m bench`` runs all works, ``python -m bench drain latency`` some, ``--list`` names them; see ``bench/README.md``.
"""
