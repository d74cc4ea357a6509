"""The servers that the tests run on: found, started, shared between xdist's workers, and stopped.

``session`` owns the shared ones, in the controlling process; workers ask it through ``desk``. One
module per server knows how to get it; ``offer`` is what a test learns about it.
"""
