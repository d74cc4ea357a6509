"""The engine on real servers: a worker in this process, or as a process of its own."""
