"""The demonstration: an orders application, a worker, and a verdict, on real servers of its own.

``shop``: the application that writes. ``payments``: the handler of the inbox. ``stage``: starts and stops servers and worker.
``verdict``: compares what was committed with what arrived. ``show``: runs all of it, with a live picture.

``broken``: five broken situations for practice. A person finds out what is wrong, and fixes it with the console.
"""
