"""The pages of alerting rules: what they say, and how operators write them with a diff before."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.alerts.models import Rule
from controlplane.alerts.rule_loop import evaluate_due
from controlplane.alerts.services import evaluations, rule_files
from controlplane.alerts.services.rule_pack import load_pack
from controlplane.alerts.services.rules import RULES
from controlplane.core.fields import epoch_ms
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.web.shown.units import unit_of
from tests.controlplane.telemetry.filling import named, store
from tests.web.conftest import digest_of, write

FILE = """
groups:
- name: engines
  rules:
  - alert: Full
    expr: kv > 0.9
    for: 5m
    labels: {severity: critical, team: serving}
    annotations: {summary: "{{ $labels.engine }} is at {{ $value }}"}
"""
FIELDS = {
    "name": "Full", "group": "engines", "expr": "kv > 0.9", "for_ms": "5m", "keep_firing_for_ms": "",
    "severity": "critical", "labels": "team: serving\n", "annotations": 'summary: "{{ $labels.engine }}"\n',
    "alertname": "", "enabled": "on",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_store(settings: Any, tmp_path: Any) -> None:
    settings.DATA_DIR = tmp_path


@pytest.fixture
def full() -> None:
    write(lambda unit: RULES.create(unit, "Full", {"expr": "kv > 0.9", "severity": "critical", "group": "engines"}))


def get(client: Client, path: str = "/rules/", status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return unescape(answer.content.decode())


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def reviewed(client: Client, path: str, fields: dict[str, str], status: int = 200) -> str:
    answer = client.post(path, {"step": "review", **fields})
    assert answer.status_code == status
    return unescape(answer.content.decode())


def applied(client: Client, path: str, fields: dict[str, str]) -> None:
    digest = digest_of(reviewed(client, path, fields))
    answer = client.post(path, {"step": "apply", "reason": "a test", "digest": digest, **fields})
    assert answer.status_code == 302


def test_rules_are_shown_by_group_with_their_state(viewer: Client, full: None) -> None:
    write(lambda unit: RULES.create(unit, "Off", {"expr": "up == 0", "enabled": False}))
    assert "waiting" in text_of(get(viewer))
    store(store_path(), [named("kv", [(epoch_ms(timezone.now()), 0.95)], engine="e-1")], Owner("node", "n-1"))
    evaluate_due()
    page = text_of(get(viewer))
    assert re.search(r"engines .*Full .*firing .*critical", page)
    assert re.search(r"rules .*Off .*off", page)
    evaluations.fail(Rule.objects.get(name="Full"), timezone.now() + timedelta(hours=1), "the server is away")
    assert "the server is away" in get(viewer)


def test_without_a_rule_the_page_says_how_to_make_one(operator: Client, viewer: Client) -> None:
    assert "No rule yet." in get(viewer)
    assert "/rules-new/" in get(operator)
    assert "/rules-new/" not in get(viewer)


def test_a_rule_is_shown_with_its_series_and_a_chart(viewer: Client, full: None) -> None:
    now_ms = epoch_ms(timezone.now())
    samples = [(now_ms - number * 15_000, 0.95) for number in range(20, -1, -1)]
    store(store_path(), [named("kv", samples, engine="e-1")], Owner("node", "n-1"))
    evaluate_due()
    page = get(viewer, "/rules/Full/")
    assert 'engine="e-1"' in text_of(page)
    # What is compared is drawn, and what it is compared with.
    assert page.count("<polyline") == 1
    assert "<line x1" in page
    assert "0.95" in text_of(page)


@pytest.mark.parametrize(
    ("expr", "unit"),
    [
        ("DCGM_FI_DEV_GPU_TEMP{node='a'}", "celsius"),
        ("max by (engine) (headworks_engine_kv_cache_usage_ratio)", "ratio"),
        ("(avg_over_time(headworks_disk_bytes[5m]))", "bytes"),
        ("headworks_pool_queue_ttl_seconds", "seconds"),
        ("headworks_cold_start_time_seconds", ""),
        ("count(headworks_disk_bytes)", ""),
        ("rate(headworks_disk_bytes[5m])", ""),
        ("headworks_disk_bytes * 8", ""),
        ("headworks_engine_requests_running", ""),
        ("max(", ""),
    ],
)
def test_a_unit_is_said_where_the_series_tells_it(expr: str, unit: str) -> None:
    assert unit_of(expr) == unit


def test_a_rule_of_the_pack_says_so_until_somebody_changes_it(viewer: Client) -> None:
    write(lambda unit: load_pack(unit))
    name = Rule.objects.order_by("pk").values_list("name", flat=True)[0]
    assert "follows it from version to version" in get(viewer, f"/rules/{name}/")
    write(lambda unit: RULES.update(unit, name, {"enabled": False}))
    assert "somebody changed it" in get(viewer, f"/rules/{name}/")
    assert len(re.findall(r"<section class=\"card\"", get(viewer))) > 3


def test_an_operator_makes_a_rule(operator: Client) -> None:
    applied(operator, "/rules-new/", FIELDS)
    rule = Rule.objects.get()
    assert (rule.name, rule.group, rule.for_ms, rule.severity, rule.enabled) == (
        "Full", "engines", 300_000, "critical", True,
    )  # fmt: skip
    assert (rule.labels, rule.annotations) == ({"team": "serving"}, {"summary": "{{ $labels.engine }}"})


def test_an_operator_changes_a_rule_and_sees_what_changes(operator: Client, full: None) -> None:
    fields = {**FIELDS, "for_ms": "10m"}
    page = reviewed(operator, "/rules/Full/edit/", fields)
    assert "600,000" in text_of(page) or "600000" in text_of(page)
    assert "PATCH" in page
    applied(operator, "/rules/Full/edit/", fields)
    assert Rule.objects.get().for_ms == 600_000
    assert 'value="10m"' in get(operator, "/rules/Full/edit/")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"expr": "kv >"}, "query"),
        ({"for_ms": "5"}, "give a duration"),
        ({"labels": "- a"}, "Give one name and its text"),
        ({"labels": "a: ["}, "no YAML"),
        ({"annotations": 'summary: "{{ query }}"'}, "query takes one text"),
        ({"name": "a b"}, "the first a letter"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_field(operator: Client, fields: dict[str, str], says: str) -> None:
    page = reviewed(operator, "/rules-new/", {**FIELDS, **fields}, 422)
    assert says in page
    assert not Rule.objects.exists()


def test_a_rule_that_is_switched_off_is_called_no_receiver_in_turkish(operator: Client, full: None) -> None:
    operator.cookies["django_language"] = "tr"
    page = operator.get("/rules/Full/switch/").content.decode()
    assert "<h1>Kapat: Full</h1>" in page


def test_an_operator_switches_a_rule_off_and_deletes_it(operator: Client, full: None) -> None:
    applied(operator, "/rules/Full/switch/", {})
    assert not Rule.objects.get().enabled
    assert "What it says now ends, and receivers are told so." in get(operator, "/rules/Full/delete/")
    applied(operator, "/rules/Full/delete/", {})
    assert not Rule.objects.exists()


def test_a_rule_file_is_imported_with_what_it_changes_shown_before(operator: Client) -> None:
    page = reviewed(operator, "/rules-import/", {"rule_file": FILE})
    assert "kv > 0.9" in page
    assert "text/yaml" in page
    assert not Rule.objects.exists()
    applied(operator, "/rules-import/", {"rule_file": FILE})
    assert rule_files.document()["groups"][0]["rules"][0]["alert"] == "Full"
    assert "Nothing would change." in reviewed(operator, "/rules-import/", {"rule_file": FILE})


def test_what_is_not_known_of_an_imported_file_is_left_out_and_told(operator: Client) -> None:
    file = {"rule_file": FILE + "  - {alert: Watchdog, expr: vector(1), labels: {severity: none}}\n"}
    assert "not 'none'" in reviewed(operator, "/rules-import/", file, 422)
    page = reviewed(operator, "/rules-import/", {**file, "skip": "on"})
    assert "Watchdog" in page
    assert "skip=true" in page
    applied(operator, "/rules-import/", {**file, "skip": "on"})
    assert [rule.name for rule in Rule.objects.all()] == ["Full"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("groups: [", "no YAML"), ("groups: [{name: a, rules: [{alert: B, expr: 'up >'}]}]", "rule 'B'")],
)
def test_what_is_no_rule_file_is_refused_and_kept_in_the_form(operator: Client, text: str, says: str) -> None:
    page = reviewed(operator, "/rules-import/", {"rule_file": text}, 422)
    assert says in page
    assert text in page


def test_pages_are_in_turkish_too(viewer: Client, full: None) -> None:
    viewer.post("/language/", {"language": "tr", "next": "/"})
    assert "Kurallar" in get(viewer)
    assert "Dışa aktar" in get(viewer)
    assert "Hiçbir seri için doğru değil." in get(viewer, "/rules/Full/")
