"""The servers of a configuration, each behind its ports: ``database``, ``redis``, and ``connected``, all together.
``passwords`` asks for those that may change.

Apart from each other, so that a pause or a wake-up, which needs Redis alone, imports no database driver.
"""
