"""The product's loops, end to end, as `headworks demo --check` walks them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.timeout(300)
def test_a_lowered_quota_reaches_the_gateway_bites_outlives_the_control_plane_and_is_taken_back() -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWORKS_")}
    # Where nothing answers: the demo must not touch what its surroundings name.
    elsewhere = {
        "HEADWORKS_DATABASE_URL": "postgres://127.0.0.1:1/real",
        "HEADWORKS_REDIS_URL": "redis://127.0.0.1:1/0",
    }
    check = subprocess.run(
        [sys.executable, "-m", "controlplane.cli", "demo", "--check", "--loop", "quota"],
        capture_output=True,
        text=True,
        timeout=280,
        env={**kept, **elsewhere},
        check=False,
    )
    assert check.returncode == 0, check.stdout + check.stderr
    assert "All 12 steps held." in check.stdout
