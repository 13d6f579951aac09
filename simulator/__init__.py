"""Simulated engines and traffic for the demo, the tests and the benchmarks. No Django.

What a simulated engine answers says so: `/version`, the `server` header and `x-headworks-simulated: true`.
"""
