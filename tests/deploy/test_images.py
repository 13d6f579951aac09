"""Images without an engine to build them: what is copied is there, what is installed is enough for the program."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.markers import Marker

from tests.deploy.compose import DOCKERFILE, ROOT, ours, read
from tests.test_project import PYPROJECT, canonical_name, project_files
from wire import VERSION

LOCKS = ROOT / "deploy/docker/locks"
# image → its program, and what that loads once it serves
PROGRAMS = {
    "server": ("controlplane.cli", "controlplane.asgi", "controlplane.celery", "controlplane.urls"),
    "gateway": ("gateway.cli", "gateway.app"),
    "agent": ("gpu_agent.cli", "gpu_agent.nvml.child"),
}


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of each instruction of the Dockerfile, in order."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def copied_from_context() -> list[str]:
    """Paths in the repository, in the form of the COPY instructions that bring them."""
    return [
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    ]


def in_context(path: str) -> bool:
    """Whether .dockerignore leaves the file in what an image is built from: the last pattern that matches decides."""
    stays = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        parts = path.split("/")
        folders = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        names = parts if pattern.startswith("**/") else folders
        if any(fnmatch.fnmatchcase(name, pattern.removeprefix("**/")) for name in names):
            stays = line.startswith("!")
    return stays


def test_what_is_copied_is_there_and_in_the_context():
    files = [file.relative_to(ROOT).as_posix() for file in project_files()]
    for source in copied_from_context():
        held = [name for name in files if name == source or name.startswith(f"{source}/")]
        assert any(in_context(name) for name in held), source


def test_no_secret_and_no_test_is_in_the_context():
    kept = {name.split("/")[0] for name in map(str, (f.relative_to(ROOT) for f in project_files())) if in_context(name)}
    assert kept == {source.split("/")[0] for source in copied_from_context()}
    assert not in_context("deploy/docker/secrets/field_key")
    assert not in_context(".headworks/field-key")
    assert not in_context("wire/__pycache__/settings.cpython-313.pyc")


def test_every_target_of_the_compose_file_is_a_stage_that_ends_without_root():
    stages: dict[str, str] = {}
    stage = ""
    for word, rest in instructions():
        if word == "FROM":
            stage = rest.split(" AS ")[1]
        elif word == "USER":
            stages[stage] = rest
    services = [service for service in read()["services"].values() if "build" in service]
    assert {service["build"]["target"] for service in services} == set(stages)
    for service in services:
        assert stages[service["build"]["target"]] == service["user"]


def test_our_images_are_of_this_version():
    tags = {service["image"].partition(":")[2] for service in ours().values()}
    assert tags == {VERSION}


def test_the_version_of_victoriametrics_is_that_of_its_image():
    (base,) = (rest for word, rest in instructions() if word == "ARG" and rest.startswith("VICTORIAMETRICS_IMAGE="))
    assert base.rpartition(":")[2] == read()["services"]["victoriametrics"]["image"].rpartition(":")[2]


def pinned(lock: Path) -> dict[str, set[str]]:
    """Version and hashes of each distribution in a lock file."""
    lines = [line for line in lock.read_text().splitlines() if not line.lstrip().startswith("#")]
    held: dict[str, set[str]] = {}
    for part in re.split(r"\n(?=\S)", "\n".join(lines).strip()):
        held.setdefault(part.partition("==")[0], set()).update(re.findall(r"==[^\s;]+|sha256:[0-9a-f]{64}", part))
    return held


@pytest.mark.parametrize("name", [*sorted(PROGRAMS), "build"])
def test_a_lock_is_a_part_of_the_whole_one(name):
    whole = pinned(ROOT / "requirements.lock")
    for distribution_name, pins in pinned(LOCKS / f"{name}.lock").items():
        assert pins == whole[distribution_name], "old: run make lock"


@pytest.mark.parametrize("image", sorted(PROGRAMS))
def test_a_lock_holds_what_its_image_declares(image):
    project = PYPROJECT["project"]
    declared = {canonical_name(name) for name in project["dependencies"] + project["optional-dependencies"][image]}
    assert declared - {canonical_name(name) for name in pinned(LOCKS / f"{image}.lock")} == set()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as the Dockerfile's stage builds it: of nothing but what is copied there."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    files = [file.relative_to(ROOT).as_posix() for file in project_files()]
    for name in files:
        if in_context(name) and name.startswith(tuple(copied_from_context())):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(built), str(source)], check=True, capture_output=True)
    (file,) = built.glob("*.whl")
    return file


@pytest.mark.parametrize("image", sorted(PROGRAMS))
def test_the_program_of_an_image_starts_with_nothing_but_its_lock(image, wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for name in installed(LOCKS / f"{image}.lock"):
        link(name, site)
    program, *served = PROGRAMS[image]
    code = f"import {', '.join(served)}, {program} as program; program.main(['--help'])"
    done = subprocess.run(
        # Without site-packages: what is not linked is not there.
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(site), "HEADWORKS_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: headworks")


def installed(lock: Path) -> list[str]:
    """Distributions of a lock file that this platform has, as pip would choose them by marker."""
    entry = re.compile(r"^(?P<name>[\w.-]+)==\S+(?: ; (?P<marker>[^\n\\]+))?", re.MULTILINE)
    return [
        found["name"]
        for found in entry.finditer(lock.read_text())
        if not found["marker"] or Marker(found["marker"].strip()).evaluate()
    ]


def link(name: str, site: Path) -> None:
    """Link each package, module and metadata folder of an installed distribution."""
    held = distribution(name)
    for top in {path.parts[0] for path in held.files or ()} - {"..", "__pycache__"}:
        (site / top).symlink_to(str(held.locate_file(top)))
