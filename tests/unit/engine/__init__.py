"""Pieces of the engine over ports in memory; no I/O."""
