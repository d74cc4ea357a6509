"""Faults against workers that run long jobs: ``make chaos-jobs``."""
