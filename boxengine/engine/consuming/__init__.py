"""The inbox side: messages of a source become rows of a box, exactly once."""
