"""boxengine beside other queues on one stand, in alternating rounds: ``make bench-peers``.

Each system has a program in ``programs/`` and an environment of its own with a pinned version, made at the first use. All
programs speak the same few verbs (``programs/contest.py``), so that nobody is measured in a way of its own. Not part of the
test suite.
"""
