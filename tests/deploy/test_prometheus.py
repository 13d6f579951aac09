"""The example of a Prometheus beside Headworks: its configuration is whole, and its rules are those of the product."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from controlplane.telemetry.recording.builtin import builtin
from docs.generate import PACK
from tests.services import service_binary

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/prometheus"
FILES = ["recording.yml", "alerting.yml"]


def promtool(*arguments):
    done = subprocess.run([service_binary("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules_of(path):
    return [rule for group in yaml.safe_load(path.read_text()).get("groups", ()) for rule in group["rules"]]


def test_prometheus_takes_the_example_with_all_its_rule_files(tmp_path):
    # The token's file is the site's.
    text = (FOLDER / "prometheus.yml").read_text().replace("/etc/prometheus/headworks-viewer.token", "token")
    (tmp_path / "prometheus.yml").write_text(text)
    (tmp_path / "token").write_text("hwt-test")
    for name in FILES:
        (tmp_path / name).write_text((FOLDER / name).read_text())
    promtool("check", "config", tmp_path / "prometheus.yml")


def test_it_names_every_rule_file():
    assert yaml.safe_load((FOLDER / "prometheus.yml").read_text())["rule_files"] == FILES


@pytest.mark.parametrize("name", FILES)
def test_promtool_takes_each_rule_file_whole(name):
    assert f"{len(rules_of(FOLDER / name))} rules found" in promtool("check", "rules", FOLDER / name)


def test_its_recording_rules_are_the_built_in_ones():
    assert yaml.safe_load((FOLDER / "recording.yml").read_text()) == builtin()


def test_its_alert_rules_are_all_those_of_the_pack():
    pack = [rule for file in sorted(PACK.glob("*.yml")) for rule in rules_of(file)]
    assert rules_of(FOLDER / "alerting.yml") == pack
    assert len(pack) > 50
