"""Tests of gpu_agent/."""
