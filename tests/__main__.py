"""All tests, as `make test` and CI run them: everything on SQLite, then what uses a database on PostgreSQL and Redis.

Prints the sum of both as its last line and fails if either failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

RUNS = {"embedded": (), "production": ("-m", "controlplane")}
# Many tests wait for processes, so one more than two cores can be busy with.
PROCESSES = 3


@dataclass(frozen=True)
class Totals:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_totals(report: Path, exit_code: int) -> Totals:
    """What a JUnit report counts. A run that fails without a failed test (a crash, nothing collected) counts as one."""
    totals = Totals()
    if report.exists():
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            totals += Totals(max(tests - failed - skipped, 0), failed, skipped)
    if exit_code != 0 and totals.failed == 0:
        totals += Totals(failed=1)
    return totals


def run(profile: str, report: Path) -> Totals:
    print(f"== profile {profile}", flush=True)
    # In the order of tests/conftest.py, which a number of tests a file says nothing of.
    spread = (f"--numprocesses={PROCESSES}", "--dist=loadfile", "--no-loadscope-reorder")
    command = [sys.executable, "-m", "pytest", *RUNS[profile], *spread, f"--junit-xml={report}"]
    exit_code = subprocess.run(command, env={**os.environ, "HEADWORKS_TEST_PROFILE": profile}, check=False).returncode
    return read_totals(report, exit_code)


def main() -> int:
    totals = Totals()
    with tempfile.TemporaryDirectory(prefix="headworks-tests-") as folder:
        for profile in RUNS:
            totals += run(profile, Path(folder) / f"{profile}.xml")
    print(totals)
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
