"""Child processes in which handlers of long jobs run.

``child`` is one process, as the worker sees it; ``pool`` keeps those of a box; ``inside`` is what runs in one.

A child is a new interpreter: it inherits nothing of the worker's threads, locks and connections. It leads a process group of its
own, so that a kill also ends what the handler has started, and Ctrl-C in a terminal reaches the worker alone. It ends when the
worker does, however that ended: on Linux the kernel kills the group when the worker's end of a pipe is closed, and everywhere a
thread of the child watches the connection.
"""
