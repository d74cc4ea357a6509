"""The command line: one module per command, registered in ``main``. Each is a thin shell around ``app``."""
