"""The inbox side: stores each message of a source as a row of a box, exactly once."""
