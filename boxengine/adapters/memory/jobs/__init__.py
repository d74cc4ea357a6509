"""Jobs in memory: the twin of the SQL adapters, for tests and the simulation.

``rows`` (a job), ``table`` (what happens to it), ``desk`` (people), ``unit`` (one attempt's writes), ``store`` (workers, and the
whole).
"""

from boxengine.adapters.memory.jobs.rows import Row
from boxengine.adapters.memory.jobs.store import MemoryJobs

__all__ = ["MemoryJobs", "Row"]
