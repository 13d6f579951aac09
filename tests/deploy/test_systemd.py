"""The units of deploy/systemd: systemd takes them, they may do no more than they must, and they say what exists."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from controlplane import cli
from gateway import settings as gateway_settings
from tests.deploy.compose import DOCKERFILE, ROOT, programs
from tests.deploy.rows import ROWS
from tests.services import service_binary

FOLDER = ROOT / "deploy/systemd"
UNITS = sorted(FOLDER.glob("*.service"))
INSTALLED = "/opt/headworks/bin/"
# Of Python, the C library and a package, by which the agent holds less memory.
SMALLER = {"PYTHONOPTIMIZE", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "FROZENLIST_NO_EXTENSIONS"}
# systemd's own measure of what a service could do to its machine: 0 nothing, 10 everything. In tenths.
EXPOSURE_LIMITS = {"headworks-agent.service": 27}
EXPOSURE_LIMIT = 17


def settings_of(unit: Path) -> dict[str, list[str]]:
    """Every directive with its values, in order."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if "=" in line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The units with the commands of this environment, since those of /opt are not installed."""
    shutil.copytree(FOLDER, tmp_path / "units")
    bin_folder = f"{ROOT / '.venv/bin'}/"
    for unit in (tmp_path / "units").glob("*.service"):
        unit.write_text(unit.read_text().replace(INSTALLED, bin_folder))
    return tmp_path / "units"


def test_systemd_takes_every_unit(here):
    done = subprocess.run(
        [service_binary("systemd-analyze"), "verify", "--man=no", *sorted(here.glob("*.service"))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_exposes_little(unit, here):
    done = subprocess.run(
        [
            service_binary("systemd-analyze"), "security", "--offline=yes",
            f"--threshold={EXPOSURE_LIMITS.get(unit.name, EXPOSURE_LIMIT)}", here / unit.name,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_starts_a_program_of_ours_without_a_shell(unit):
    (command,) = settings_of(unit)["ExecStart"]
    program, *words = command.removeprefix(INSTALLED).split()
    assert command.startswith(INSTALLED)
    assert program in programs()
    if program == "headworks":
        assert isinstance(cli._parser().parse_args(words), argparse.Namespace)
    else:
        assert words == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_variable_is_a_setting(unit):
    for assignment in settings_of(unit).get("Environment", []):
        name, _, value = assignment.partition("=")
        if name in SMALLER:
            continue
        row = ROWS[name]
        assert not row.secret or name != row.name, f"{name} is a secret: give it by LoadCredential"
        # %S and %d: the state directory and that of credentials, as systemd fills them in.
        if name == row.name:
            row.read({name: value.replace("%S", "/var/lib").replace("%d", "/run/credentials/unit")})


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_runs_as_a_user_of_its_own_with_an_end(unit):
    given = settings_of(unit)
    users = {line.split()[1] for line in (FOLDER / "sysusers.conf").read_text().splitlines() if line.startswith("u ")}
    assert given["User"][0] in users
    for bounded in ("MemoryMax", "TasksMax"):
        assert re.fullmatch(r"\d+[MG]?", given[bounded][0])
    assert "Restart" in given or given["Type"] == ["oneshot"]


def test_all_units_are_hardened_alike():
    """What one needs beyond the others is stated after the block that all have."""
    blocks = set()
    for unit in UNITS:
        block = unit.read_text().partition("# No root, no new privilege")[2].partition("UMask=0077")[0]
        assert block, unit.name
        blocks.add(block)
    assert len(blocks) == 1


def test_a_gateway_is_not_killed_while_it_drains():
    given = settings_of(FOLDER / "headworks-gateway.service")
    environment = dict(line.split("=", 1) for line in given["Environment"])
    drain = gateway_settings.DRAIN_SECONDS.read(
        {"HEADWORKS_GATEWAY_DRAIN_SECONDS": environment["HEADWORKS_GATEWAY_DRAIN_SECONDS"]}
    )
    assert int(given["TimeoutStopSec"][0]) >= drain + gateway_settings.LAST_SEND_SECONDS.read({})


def test_the_agents_image_runs_as_small_as_its_unit():
    unit = set(settings_of(FOLDER / "headworks-agent.service")["Environment"])
    smaller = {assignment for assignment in unit if assignment.partition("=")[0] in SMALLER}
    assert len(smaller) == len(SMALLER)
    image = DOCKERFILE.read_text().rpartition(" AS agent\n")[2]
    assert set(re.findall(r"^ENV (.*)$", image, re.MULTILINE)[0].split()) == smaller


def test_what_the_control_plane_needs_migrated_waits_for_it():
    for name in ("web", "worker", "beat"):
        given = settings_of(FOLDER / f"headworks-{name}.service")
        assert given["Requires"] == ["headworks-migrate.service"]
        assert "headworks-migrate.service" in given["After"][0].split()


def test_the_page_names_every_file_of_the_folder():
    page = (ROOT / "docs/systemd.md").read_text()
    assert [file.name for file in sorted(FOLDER.rglob("*")) if file.is_file() and file.name not in page] == []
