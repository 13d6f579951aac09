"""A small fleet in which what goes wrong is known, to see what the diagnosis makes of it."""
