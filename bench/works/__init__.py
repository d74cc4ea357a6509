"""The works, one module for each group; ``catalogue`` lists them."""
