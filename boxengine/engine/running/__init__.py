"""The worker as a process: its threads, their health, the leases' length, and an orderly stop."""
