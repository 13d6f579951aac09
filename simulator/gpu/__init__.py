"""Simulated GPUs: a library that stands for NVML, the state file that drives it, load and faults."""
