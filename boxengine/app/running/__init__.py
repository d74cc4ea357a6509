"""A worker's process: ``in_application`` (inside an application, which starts and stops it), ``watchers`` (observer, tracer,
metrics), ``garbage`` (Python's collector).
"""
