"""Where Django looks for management commands."""
