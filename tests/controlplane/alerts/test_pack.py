"""The default rules: each has a unit test and a runbook, and both engines judge the tests alike."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.alerts import runbooks
from controlplane.alerts.health import CAUSES
from controlplane.alerts.models import Severity
from controlplane.alerts.pipeline.matchers import matcher
from controlplane.alerts.rule_file.fields import checked
from controlplane.alerts.rule_file.text import read_yaml
from controlplane.alerts.rule_file.unit_text import lines_of, run_file
from controlplane.api.api import api
from controlplane.telemetry.own_metadata import OWN
from controlplane.telemetry.promql.grammar import parse
from controlplane.telemetry.recording.builtin import builtin
from docs.generate import SETTINGS_MODULES
from gateway.refusals import REASONS
from tests.services import service_binary

# They ask no database.
pytestmark = pytest.mark.own_servers
ROOT = Path(__file__).parents[3]
PACK = ROOT / "controlplane/alerts/pack"
RUNBOOKS = ROOT / "docs/runbooks"
INHIBITIONS = PACK / "inhibitions.yml"
RULE_FILES = sorted(file for file in PACK.glob("*.yml") if file != INHIBITIONS)
TEST_FILES = sorted(PACK.glob("tests/*_test.yml"))
HEALTHY = PACK / "tests/healthy_test.yml"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for file in RULE_FILES
    for group in yaml.safe_load(file.read_text())["groups"]
    for rule in group["rules"]
}
RUNBOOK_LINES_MAX = 40
KNOWN = OWN.keys() | {rule["record"] for group in builtin()["groups"] for rule in group["rules"]}


def names(files: Sequence[Path]) -> list[str]:
    return [file.name for file in files]


@cache
def cases(file: Path) -> list[dict[str, Any]]:
    return [case for test in yaml.safe_load(file.read_text())["tests"] for case in test["alert_rule_test"]]


def promtool(*arguments: str | Path, folder: Path = PACK) -> str:
    argv = [service_binary("promtool"), *arguments]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_prometheus_takes_every_file():
    assert RULE_FILES
    assert promtool("check", "rules", *RULE_FILES) == ""


@pytest.mark.parametrize("file", TEST_FILES, ids=names(TEST_FILES))
def test_prometheus_fires_what_the_unit_tests_say(file):
    assert promtool("test", "rules", file.name, folder=file.parent) == ""


@pytest.mark.parametrize("file", TEST_FILES, ids=names(TEST_FILES))
def test_our_own_engine_fires_what_the_unit_tests_say(file):
    def find(wanted: Sequence[str]) -> dict[str, bytes]:
        return {name: (file.parent / name).read_bytes() for name in wanted}

    assert "\n".join(lines_of(run_file(file.read_bytes(), find, seconds=60))) == ""


@pytest.mark.parametrize("file", RULE_FILES, ids=names(RULE_FILES))
def test_a_file_passes_the_checks_of_those_that_people_import(file):
    taken = [rule for group in checked(read_yaml(file.read_bytes())) for rule in group.rules]
    assert len(taken) == file.read_text().count("- alert: ")


def test_no_name_is_given_twice():
    given = [rule for file in RULE_FILES for rule in re.findall(r"- alert: (\w+)", file.read_text())]
    assert len(given) == len(set(given))
    # Those of events are told apart from these by name alone.
    assert not RULES.keys() & {cause.alertname for cause in CAUSES.values()}


def test_a_rule_says_what_is_wrong_and_where_to_read_on():
    for alertname in RULES:
        rule = RULES[alertname]
        assert rule["labels"]["severity"] in set(Severity)
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert "$value" in rule["annotations"]["summary"] or "{{ $labels." in rule["annotations"]["summary"]
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{runbooks.slug_of(alertname)}.md"


def test_a_rule_fires_in_its_test_and_stays_quiet_before_and_after():
    for alertname in RULES:
        said = [bool(case["exp_alerts"]) for file in TEST_FILES if file != HEALTHY for case in cases(file)
                if case["alertname"] == alertname]  # fmt: skip
        assert (said[0], True in said, said[-1]) == (False, True, False)
        assert alertname in {case["alertname"] for case in cases(HEALTHY)}


def test_nothing_fires_in_a_fleet_that_is_well():
    assert not any(case["exp_alerts"] for case in cases(HEALTHY))


def test_rules_and_runbooks_are_the_same():
    index = (RUNBOOKS / "index.md").read_text()
    assert runbooks.pages() == {
        file.relative_to(RUNBOOKS).as_posix(): file.read_text() for file in RUNBOOKS.rglob("*.md")
    }
    pages = {file.stem for file in RUNBOOKS.glob("*.md")} - {"index"}
    assert pages == {runbooks.slug_of(name) for name in RULES}
    for name, rule in RULES.items():
        assert f"| [{name}]({runbooks.slug_of(name)}.md) | {rule['labels']['severity']} |" in index
        assert (RUNBOOKS / f"{runbooks.slug_of(name)}.md").read_text().startswith(f"# {name}\n")


def test_a_runbook_says_all_that_one_needs_at_night():
    for alertname in RULES:
        page = (RUNBOOKS / f"{runbooks.slug_of(alertname)}.md").read_text()
        assert len(page.splitlines()) <= RUNBOOK_LINES_MAX
        for part in ("Why it matters", "Look at", "Do", "False alarm"):
            assert f"**{part}" in page
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page):
            assert (RUNBOOKS / link).resolve().exists(), link
        for block in re.findall(r"^```promql\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                parse(line)


def test_runbooks_name_calls_settings_and_series_that_there_are():
    def form(path: str) -> str:
        return re.sub(r"{[^}]+}|\b[A-Z]{3,}\b|…", "*", path).rstrip("/")

    calls = {
        f"{method.upper()} {form(path)}"
        for path, found in api.get_openapi_schema()["paths"].items()
        for method in found
    }
    settings = {setting.name for module in SETTINGS_MODULES for setting in import_module(module).SETTINGS}
    for name, page in runbooks.pages().items():
        for method, path in re.findall(r"`(GET|POST|PATCH|PUT|DELETE) (/api/v1/[^`?\s]+)", page):
            assert f"{method} {form(path)}" in calls, name
        assert set(re.findall(r"HEADWORKS_\w+", page)) <= settings, name
        series = re.findall(r"(?<![\w:])(?:pool:)?headworks_[a-z][a-z0-9_:]*", page)
        assert {each.removesuffix("_bucket").removesuffix(":") for each in series} <= KNOWN, name


def test_a_rule_asks_for_series_that_are_there():
    known = KNOWN | {f"{name}_bucket" for name in OWN}
    for name, rule in RULES.items():
        asked = set(re.findall(r"\b(?:headworks_\w+|pool:[\w:]+)", rule["expr"]))
        assert asked <= known, name


def test_shares_of_refusals_count_every_reason_of_their_status():
    def reasons(alertname: str) -> set[str]:
        (found,) = re.findall(r'outcome="refused", reason=~"([^"]+)"', RULES[alertname]["expr"])
        return set(found.split("|"))

    of_status = {status: {name for name, row in REASONS.items() if row.status == status} for status in (429, 503)}
    late = {"queue_timeout", "cannot_finish_in_time"}
    assert reasons("TenantOverLimit") == of_status[429]
    assert reasons("PoolRefusingMost") == of_status[503]
    # These two are a rule of their own.
    assert reasons("PoolRefusing") | late == of_status[503]
    assert re.findall(r'reason=~"([^"]+)"', RULES["QueueDrops"]["expr"]) == ["|".join(sorted(late, reverse=True))]


def test_alertmanager_takes_the_inhibitions(tmp_path):
    rules = [{name: part for name, part in rule.items() if name != "name"} for rule in inhibitions()]
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump({"route": {"receiver": "r"}, "receivers": [{"name": "r"}], "inhibit_rules": rules}))
    argv = [service_binary("amtool"), "check-config", file]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def inhibitions() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = yaml.safe_load(INHIBITIONS.read_text())["inhibit_rules"]
    return rules


@pytest.mark.parametrize("rule", inhibitions(), ids=lambda rule: rule["name"])
def test_an_inhibition_names_alerts_that_there_are(rule):
    known = RULES.keys() | {cause.alertname for cause in CAUSES.values()}
    for one in map(matcher, (*rule["source_matchers"], *rule["target_matchers"])):
        if one.label == "alertname":
            # Each branch of a pattern, but those within its parentheses.
            for name in re.split(r"\|(?![^(]*\))", one.value):
                assert any(re.fullmatch(name, each) for each in known), name


def test_a_node_that_is_lost_mutes_all_else_that_is_about_it():
    (rule,) = [rule for rule in inhibitions() if rule["name"] == "lost-node"]
    assert rule["equal"] == ["node"]
    # An alert without a node has the same value of that label as any other without one.
    assert 'node!=""' in rule["target_matchers"]


@pytest.mark.parametrize(
    ("alertname", "detail", "slug"),
    [
        (
            "GpuXid",
            "XID 79 (GPU has fallen off the bus) on GPU 3: class hardware, action cordon_reboot",
            "gpu-xid-hardware",
        ),
        ("GpuXid", "XID 45 (…) on GPU 3: class sympathetic, action none", "gpu-xid-unknown"),
        ("GpuXid", "something else", "gpu-xid-unknown"),
        ("EngineHung", "", "engine-stalled"),
    ],
)
def test_an_alert_of_an_event_has_the_runbook_of_the_rule_that_watches_the_same(alertname, detail, slug):
    assert runbooks.of_event(alertname, detail) == {"runbook_url": f"docs/runbooks/{slug}.md"}
    assert runbooks.page(slug)


def test_every_event_that_hardware_and_engines_have_leads_to_a_runbook_that_there_is():
    without = {"SpotNotice", "EnginePaused"}
    for cause in CAUSES.values():
        found = runbooks.of_event(cause.alertname, "")
        assert (cause.alertname in without) == (found == {})
        assert not found or runbooks.page(runbooks.slug_in(found["runbook_url"]))
