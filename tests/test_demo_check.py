"""The product's loops, end to end, as `headworks demo --check` walks them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from controlplane.demo_check.run import LOOPS


@pytest.mark.timeout(420)
def test_a_limit_bites_and_a_gpu_fault_cordons_and_calls_and_no_kill_loses_or_doubles_anything() -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWORKS_")}
    # Where nothing answers: the demo must not touch what its surroundings name.
    elsewhere = {
        "HEADWORKS_DATABASE_URL": "postgres://127.0.0.1:1/real",
        "HEADWORKS_REDIS_URL": "redis://127.0.0.1:1/0",
        "HEADWORKS_PROMETHEUS_URL": "http://127.0.0.1:1",
        "HEADWORKS_REMOTE_WRITE_URL": "http://127.0.0.1:1/api/v1/write",
    }
    check = subprocess.run(
        [sys.executable, "-m", "controlplane.cli", "demo", "--check"],
        capture_output=True,
        text=True,
        timeout=400,
        env={**kept, **elsewhere},
        check=False,
    )
    assert check.returncode == 0, check.stdout + check.stderr
    lines = check.stdout.splitlines()
    assert [line for line in lines if line.startswith("loop: ")] == [f"loop: {name}" for name in LOOPS]
    held = [line for line in lines if line.startswith("  ok ")]
    assert lines[-1] == f"All {len(held)} steps held."
