"""Implementations of the ports, one module or package for each library or server."""
