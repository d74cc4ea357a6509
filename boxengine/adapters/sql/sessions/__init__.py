"""Sessions of the users' code: the one a caller creates items in, and those that handlers write in."""
