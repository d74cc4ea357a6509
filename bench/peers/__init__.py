"""boxengine beside other queues on one stand, in alternating rounds: ``make bench-peers``.

Each system has a program in ``programs/`` and its own environment with a pinned version, created at the first use. All
programs understand the same few verbs (``programs/contest.py``), so that all are measured alike. Not part of the test suite.
"""
