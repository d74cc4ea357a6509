"""One module for each management command, named after it."""
