"""Orders: each is announced once it is committed."""
