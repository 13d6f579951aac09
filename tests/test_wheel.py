"""What is installed from a wheel is the whole product, not only its Python files."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.test_project import PACKAGES, ROOT, project_files

# Sources of what is shipped built, and what only developers read.
NOT_SHIPPED = {".po", ".md", ".proto", ".pyi"}


def test_a_wheel_holds_every_file_that_runs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    files = [file.relative_to(ROOT).as_posix() for file in project_files()]
    for name in files:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path,
        source,
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    expected = {name for name in files if name.startswith(tuple(f"{package}/" for package in PACKAGES))}
    assert {name for name in expected - packed if Path(name).suffix not in NOT_SHIPPED} == set()
    # Of the .md files those that pages show.
    runbooks = {name for name in expected if name.startswith("controlplane/alerts/pack/runbooks/")}
    assert runbooks
    assert runbooks <= packed
