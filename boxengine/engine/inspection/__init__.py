"""What people ask about rows when they look for trouble: found by index, or among so many rows and no more."""
