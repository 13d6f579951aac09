"""What holds for the whole tree: documented settings, import rules, a lock that installs anywhere, clean texts."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pip._internal.models.index import PyPI  # the one place that knows the registry's hosts

from docs import generate
from tests.deploy.rows import ROWS
from tests.services import service_binary

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests")
PRODUCT_FILES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))


@cache
def project_files() -> list[Path]:
    """Files of the repository, and new ones that git does not ignore."""
    git = service_binary("git")
    listed = subprocess.run(
        [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    return [file for name in listed.split("\0") if name and (file := ROOT / name).is_file()]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """Where a project text matches, as `file:line`; binary files are passed over."""
    found = []
    for file in project_files():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if pattern.search(text):
            for number, line in enumerate(text.splitlines(), 1):
                if pattern.search(line):
                    found.append(f"{file.relative_to(ROOT)}:{number}")
    return found


@pytest.mark.parametrize("name", sorted(generate.PAGES))
def test_a_generated_page_is_up_to_date(name):
    assert (ROOT / "docs" / name).read_text() == generate.PAGES[name](), f"docs/{name} is old: run make docs"


@pytest.mark.parametrize("name", sorted(generate.FILES))
def test_a_generated_file_of_deploy_is_up_to_date(name):
    assert (ROOT / "deploy" / name).read_text() == generate.FILES[name](), f"deploy/{name} is old: run make docs"


def test_a_default_is_documented_as_one_would_write_it():
    shown = {row.name: generate.shown_default(row.default).strip("`") for row in ROWS.values()}
    given = {name: text for name, text in shown.items() if text != "empty"}
    assert {name: ROWS[name].read({name: text}) for name, text in given.items()} == {
        name: ROWS[name].default for name in given
    }


def test_every_setting_stands_in_a_documented_module():
    declaring = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in PRODUCT_FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split("[")[0].split(".")[-1] == "Setting"
    }
    assert declaring == set(generate.SETTINGS_MODULES)


def environment_reads(source: str) -> Iterator[int]:
    """Lines that read a variable of the environment. Passing the whole of it on to a child process is no read."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module="os", names=names) if {name.name for name in names} & {"environ", "getenv"}:
                yield node.lineno
            case ast.Attribute(value=ast.Name(id="os"), attr="getenv"):
                yield node.lineno
            case ast.Attribute(value=ast.Attribute(attr="environ"), attr="get" | "pop" | "items" | "keys" | "values"):
                yield node.lineno
            case ast.Subscript(value=ast.Attribute(attr="environ"), ctx=ast.Load()):
                yield node.lineno
            case ast.Compare(comparators=comparators) if any(
                isinstance(operand, ast.Attribute) and operand.attr == "environ" for operand in comparators
            ):
                yield node.lineno


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("import os\nos.environ['A']", [2]),
        ("import os\nos.environ.get('A')", [2]),
        ("import os\nos.getenv('A')", [2]),
        ("import os\n'A' in os.environ", [2]),
        ("from os import environ", [1]),
        ("import os\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'a')\nchild = {**os.environ, 'A': 'b'}", []),
    ],
)
def test_a_read_of_the_environment_is_seen(source, reads):
    assert list(environment_reads(source)) == reads


def test_only_settings_read_the_environment():
    reads = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in PRODUCT_FILES
        if file != ROOT / "wire" / "settings.py"
        for line in environment_reads(file.read_text())
    ]
    assert reads == []


def test_import_rules_hold():
    command: list[str | Path] = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    lint = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_import_rules_cover_every_package():
    assert sorted(PYPROJECT["tool"]["importlinter"]["root_packages"]) == PACKAGES


def test_the_lock_pins_every_requirement_by_hash_and_names_no_address():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    pinned = re.compile(r"[\w.-]+==\S+( ; [^\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+")
    assert [entry for entry in re.split(r"\n(?=\S)", text) if not pinned.fullmatch(entry)] == []
    assert [line for line in lines if "://" in line] == []


def test_the_lock_holds_every_declared_dependency():
    locked = {canonical_name(line) for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    assert declared_dependencies() - locked == set()


def test_every_declared_dependency_is_justified():
    page = (ROOT / "docs/decisions/0001-dependencies.md").read_text()
    justified = {canonical_name(name) for name in re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)}
    assert justified == declared_dependencies()


def declared_dependencies() -> set[str]:
    project = PYPROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return {canonical_name(requirement) for group in groups for requirement in group}


def canonical_name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def registry_hosts() -> set[str]:
    """Hosts that this machine installs from, as its clients are set up."""
    pip = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    sources = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    texts = [pip.stdout, *(file.read_text() for file in sources if file.is_file())]
    found = {host for text in texts for host in re.findall(r"https?://(?:[^/@\s]*@)?([\w.-]+)", text)}
    return {PyPI.netloc, PyPI.file_storage_domain, *found}


def test_no_file_names_a_registry_host():
    assert lines_with(re.compile("|".join(re.escape(host) for host in sorted(registry_hosts())))) == []


def test_no_file_names_a_path_of_one_machine():
    own = {str(ROOT), str(Path.home())} - {"/"}
    # Anyone's home folder is a path of the machine on which the text was written.
    homes = [*(re.escape(path) for path in sorted(own)), "/home/" r"\w", "/Users/" r"\w"]
    assert lines_with(re.compile(rf"(?<![\w.~-])(?:{'|'.join(homes)})")) == []
