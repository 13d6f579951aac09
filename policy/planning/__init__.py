"""Planning before anything runs: what a model takes of GPUs, how to share it out, how many it serves, their waits."""
