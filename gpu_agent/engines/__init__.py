"""A node's engines: are they up, and what their metrics pages say, under one set of names."""
