"""All tests, as `make test` and CI run them: on SQLite, then what uses a database on PostgreSQL and Redis.

What failed is run once more, alone: one late second of a busy machine is no fault, and is named all the same. Prints
the sum of both profiles as its last line and fails if a test failed each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.profile import SERVERS
from tests.services import missing_program

# What needs a database behind it alone runs on PostgreSQL, where that is.
RUNS = {"embedded": () if missing_program(*SERVERS) else ("-m", "not once"), "production": ("-m", "controlplane")}
# Many tests wait for processes, so one more than two cores can be busy with.
PROCESSES = 3
# So many late seconds are no accident.
AGAIN_MAX = 20


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


def run(profile: str, folder: Path) -> tuple[Totals, list[str]]:
    """What came of a profile's tests, and which of them passed only when they were run again."""
    print(f"== profile {profile}", flush=True)
    report, cache = folder / "report.xml", folder / "cache"
    # In the order of tests/conftest.py, which a number of tests a file says nothing of.
    spread = (f"--numprocesses={PROCESSES}", "--dist=loadfile", "--no-loadscope-reorder")
    exit_code = _pytest(profile, cache, *spread, f"--junit-xml={report}")
    totals, failed = read_totals(report, exit_code), _failed(cache)
    # A file that could not be read is among them by its path alone.
    tests_failed = exit_code == pytest.ExitCode.TESTS_FAILED and all("::" in node for node in failed)
    if not tests_failed or not 1 <= len(failed) <= AGAIN_MAX:
        return totals, []
    print(f"== profile {profile}: what failed, once more and alone", flush=True)
    # With the numbers that were drawn for them, which may be what they failed for.
    _pytest(profile, cache, "--numprocesses=0", "--last-failed", "--randomly-seed=last")
    again = _failed(cache)
    ran = totals.passed + totals.failed
    return Totals(ran - len(again), len(again), totals.skipped), sorted(failed - again)


def _pytest(profile: str, cache: Path, *more: str) -> int:
    command = [sys.executable, "-m", "pytest", *RUNS[profile], "-o", f"cache_dir={cache}", *more]
    return subprocess.run(command, env={**os.environ, "HEADWORKS_TEST_PROFILE": profile}, check=False).returncode


def _failed(cache: Path) -> set[str]:
    """What failed when it ran last, as pytest writes down for `--last-failed`."""
    written = cache / "v" / "cache" / "lastfailed"
    return set(json.loads(written.read_text())) if written.exists() else set()


def main() -> int:
    totals, late = Totals(), []
    for profile in RUNS:
        with tempfile.TemporaryDirectory(prefix="headworks-tests-") as folder:
            came, passed_again = run(profile, Path(folder))
        totals += came
        late += [f"{name} ({profile})" for name in passed_again]
    for name in late:
        print(f"passed only when run again: {name}")
    print(totals)
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
