"""Five broken situations for practice: each is set up for real, and a person finds and fixes it with the console."""
