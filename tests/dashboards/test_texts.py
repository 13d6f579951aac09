"""The dashboards' own templates, assets and translations keep to what holds for all pages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import service_binary
from tests.test_pages import ROOT, inline_code, messages, outside_addresses

DASHBOARDS = ROOT / "dashboards"
TEMPLATES = sorted(DASHBOARDS.rglob("templates/**/*.html"))
ASSETS = sorted(file for file in DASHBOARDS.rglob("static/**/*") if file.is_file())
CATALOGUE = DASHBOARDS / "locale/tr/LC_MESSAGES/django.po"


def test_there_are_templates_and_assets() -> None:
    assert TEMPLATES
    assert {file.suffix for file in ASSETS} == {".css", ".js"}


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.name)
def test_a_template_has_no_inline_code(file: Path) -> None:
    assert inline_code(file.read_text()) == []


@pytest.mark.parametrize("file", [*TEMPLATES, *ASSETS], ids=lambda file: file.name)
def test_pages_load_nothing_from_outside(file: Path) -> None:
    assert list(outside_addresses(file.read_text())) == []


def test_every_text_is_in_the_turkish_catalogue(tmp_path: Path) -> None:
    msgcmp = service_binary("msgcmp")
    copy = tmp_path / "dashboards"
    shutil.copytree(DASHBOARDS, copy, ignore=shutil.ignore_patterns("*.po", "*.mo", "__pycache__"))
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-m", "django", "makemessages", "--locale", "tr", "--keep-pot"]
    subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=True)
    compared = subprocess.run(
        [msgcmp, CATALOGUE, copy / "locale/django.pot"], capture_output=True, text=True, check=False
    )
    assert compared.returncode == 0, f"run makemessages and translate:\n{compared.stderr}"


def test_the_compiled_catalogue_is_that_of_the_sources(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.mo"
    checked = subprocess.run(
        [service_binary("msgfmt"), "--check", "--statistics", "--output-file", fresh, CATALOGUE],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert re.fullmatch(r"\d+ translated messages?\.", checked.stderr.strip()), checked.stderr
    assert messages(CATALOGUE.with_suffix(".mo")) == messages(fresh), "run compilemessages"
