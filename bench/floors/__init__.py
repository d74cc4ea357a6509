"""The floor programs: the least code that does the same work, with none of the promises."""
