"""Benchmarks: each prints a table for people, and as its last line one JSON object with figures and targets."""
