"""A worker's process: ``in_application`` (inside an application, which starts and stops it), ``watchers`` (observer, tracer,
metrics), ``loops`` (what makes them), ``garbage`` (Python's collector).
"""
