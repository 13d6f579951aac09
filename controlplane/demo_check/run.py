"""Run one loop, or all, on a fleet that is started for it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from controlplane.demo.fleet import Fleet, Profile
from controlplane.demo.ports import Ports
from controlplane.demo.start import start_all, start_traffic
from controlplane.demo_check.acts import acts_loop
from controlplane.demo_check.fault import SETTINGS, fault_loop
from controlplane.demo_check.quota import LIMITED, quota_loop
from controlplane.demo_check.steps import NotHeld, Steps, expect
from controlplane.processes import Supervisor

LOOPS: dict[str, Callable[[Fleet, Steps], None]] = {"quota": quota_loop, "fault": fault_loop, "acts": acts_loop}


def run_check(loop: str, profile: Profile) -> int:
    """Walk through `loop`, or all of them; 0 only if every step held."""
    chosen = LOOPS if loop == "all" else {loop: LOOPS[loop]}
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="headworks-check-") as name, Supervisor() as supervisor:
        fleet = Fleet(Path(name), Ports.free(), supervisor, profile, SETTINGS)
        try:
            steps.run("the fleet starts", lambda: _start(fleet))
            steps.run("traffic of the other tenants runs", lambda: start_traffic(fleet, without=LIMITED))
            for title, walk in chosen.items():
                print(f"loop: {title}", flush=True)
                walk(fleet, steps)
            steps.run("every process runs", lambda: _all_run(fleet))
        except NotHeld as error:
            print(f"check failed at: {error}", file=sys.stderr)
            for child in supervisor.children:
                state = "running" if child.running else "ended"
                print(f"--- {child.name} ({state})\n{child.log_tail(12)}", file=sys.stderr)
            return 1
    print(f"All {steps.count} steps held.")
    return 0


def _start(fleet: Fleet) -> str:
    start_all(fleet)
    return f"{len(fleet.children)} processes"


def _all_run(fleet: Fleet) -> str:
    ended = [name for name, child in fleet.children.items() if not child.running]
    expect(not ended, f"ended by themselves: {ended}")
    return f"{len(fleet.children)} of {len(fleet.children)}"
