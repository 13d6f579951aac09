"""The example of a Prometheus beside Headworks: its configuration is whole, and its rules are those of the product."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from controlplane.telemetry.recording.builtin import builtin
from tests.services import service_binary

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/prometheus"
PACK = ROOT / "controlplane/alerts/pack"


def test_prometheus_takes_the_example_with_all_its_rule_files(tmp_path):
    # The token's file is the site's.
    text = (FOLDER / "prometheus.yml").read_text().replace("/etc/prometheus/headworks-viewer.token", "token")
    (tmp_path / "deploy/prometheus").mkdir(parents=True)
    here = tmp_path / "deploy/prometheus/prometheus.yml"
    here.write_text(text.replace("../../controlplane", str(ROOT / "controlplane")))
    here.with_name("token").write_text("hwt-test")
    here.with_name("recording.yml").write_text((FOLDER / "recording.yml").read_text())
    argv = [service_binary("promtool"), "check", "config", here]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_names_every_file_of_the_pack():
    named = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["rule_files"]
    files = {(FOLDER / name).resolve() for name in named}
    assert files == {FOLDER / "recording.yml", *PACK.glob("*.yml")} - {PACK / "inhibitions.yml"}


def test_its_recording_rules_are_the_built_in_ones():
    assert yaml.safe_load((FOLDER / "recording.yml").read_text()) == builtin(), "write it anew from builtin()"
