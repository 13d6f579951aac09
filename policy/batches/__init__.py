"""Work that may wait a day: what a line of it must be, whose turn it is, when one may start, what becomes of it."""
