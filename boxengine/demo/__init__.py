"""The demonstration: an orders application, a worker, and a verdict, on real servers of its own.

``shop``: the application that writes. ``payments``: the handler of the inbox. ``stage``: servers and worker, started and
stopped. ``verdict``: what was committed against what arrived. ``show``: all of it, with a live picture.
"""
