"""The servers of a configuration, each behind its ports: ``database``, ``redis``, and ``connected``, all together.

Three modules, so that a pause or a wake-up, which needs Redis alone, imports no database driver.
"""
