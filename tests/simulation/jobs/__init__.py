"""Simulated workers that run long jobs, with crashes, pauses, outages, clock jumps and people in their way."""
