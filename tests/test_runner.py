"""What `make test` says of tests that fail, of a small project whose files write down each time they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import __main__ as runner

INI = "[pytest]\naddopts = -p xdist -p randomly\n"
# `ran()`: how often this test ran, this time included.
HEAD = """
import inspect
from pathlib import Path

def ran():
    counted = Path(__file__).parent / inspect.stack()[1].function
    times = int(counted.read_text()) + 1 if counted.exists() else 1
    counted.write_text(str(times))
    return times

def test_right():
    assert ran()
"""
LATE = "def test_late():\n    assert ran() > 1\n"
WRONG = "def test_wrong():\n    assert ran() < 1\n"


class Project:
    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capfd = folder, capfd
        (folder / "pytest.ini").write_text(INI)

    def holds(self, name: str, tests: str) -> None:
        (self.folder / name).write_text(HEAD + tests)

    def run(self) -> tuple[int, list[str]]:
        """The exit status, and the lines after pytest's own."""
        status = runner.main()
        lines = self._capfd.readouterr().out.splitlines()
        return status, lines[max(number for number, line in enumerate(lines) if line.startswith("=")) + 1 :]

    def times(self, test: str) -> int:
        return int((self.folder / test).read_text())


@pytest.fixture
def project(tmp_path, monkeypatch, capfd):
    # The plugins of the whole suite take longer to load than these tests.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # What whoever runs the suite wants of it is not wanted of these.
    for name in ("FORCE_COLOR", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PY_COLORS", "0")
    monkeypatch.setattr(runner, "RUNS", {"embedded": ("-c", str(tmp_path / "pytest.ini"), str(tmp_path))})
    monkeypatch.setattr(runner, "PROCESSES", 1)
    return Project(tmp_path, capfd)


def test_what_passes_again_is_named_and_passes(project):
    project.holds("test_it.py", LATE)
    assert project.run() == (
        0, ["passed only when run again: test_it.py::test_late (embedded)", "2 passed, 0 failed, 0 skipped"]
    )  # fmt: skip
    assert (project.times("test_late"), project.times("test_right")) == (2, 1)


def test_what_fails_again_fails_beside_what_does_not(project):
    project.holds("test_it.py", LATE + WRONG)
    assert project.run() == (
        1, ["passed only when run again: test_it.py::test_late (embedded)", "2 passed, 1 failed, 0 skipped"]
    )  # fmt: skip
    assert (project.times("test_late"), project.times("test_wrong"), project.times("test_right")) == (2, 2, 1)


def test_what_fails_for_the_numbers_drawn_for_it_fails_again(project):
    drawn = """
def test_drawn():
    import random
    drawn = Path(__file__).parent / "numbers"
    number = str(random.random())
    first = not drawn.exists()
    drawn.write_text(number) if first else None
    assert not first and drawn.read_text() != number
"""
    project.holds("test_it.py", drawn)
    assert project.run() == (1, ["1 passed, 1 failed, 0 skipped"])


def test_a_set_up_and_an_end_that_fail_are_run_again_too(project):
    project.holds(
        "test_it.py",
        """
import pytest

@pytest.fixture
def late_to_start():
    assert ran() > 1

@pytest.fixture
def late_to_end():
    yield
    assert ran() > 1

def test_start(late_to_start):
    pass

def test_end(late_to_end):
    pass
""",
    )
    status, lines = project.run()
    named = [f"passed only when run again: test_it.py::{name} (embedded)" for name in ("test_end", "test_start")]
    assert (status, lines[:-1]) == (0, named)
    assert " 0 failed" in lines[-1]


def test_many_are_no_accident(project, monkeypatch):
    monkeypatch.setattr(runner, "AGAIN_MAX", 2)
    project.holds("test_it.py", LATE + LATE.replace("late", "later") + LATE.replace("late", "last"))
    assert project.run() == (1, ["1 passed, 3 failed, 0 skipped"])
    assert project.times("test_late") == 1


def test_where_a_file_cannot_be_read_nothing_is_run_again(project):
    project.holds("test_it.py", LATE)
    project.holds("test_unreadable.py", "import no_such_module\n")
    status, lines = project.run()
    assert (status, len(lines)) == (1, 1)
    assert project.times("test_late") == 1
    assert " 0 failed" not in lines[0]


def test_nothing_to_run_is_a_failure(project):
    assert project.run() == (1, ["0 passed, 1 failed, 0 skipped"])
