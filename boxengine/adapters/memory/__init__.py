"""In-memory twins of the ports. They pass the same conformance suite as the real ones."""
