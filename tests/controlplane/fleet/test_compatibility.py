"""Rules of what may serve side by side, over REST, and what they have against engines as their agents told them."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module

import pytest
from django.apps import apps
from django.db import connection

from controlplane.core.models import AuditEntry
from controlplane.fleet.compatibility import judge
from controlplane.fleet.models import CompatibilityRule
from controlplane.fleet.services import take_report
from tests.controlplane.fleet.conftest import ENGINE, problem_paths
from wire.messages import EngineReport, NodeReport

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RULE = {"name": "one-version", "rule": {"every": ["version"]}, "reason": "they differ"}


@pytest.fixture
def no_rules(db):
    CompatibilityRule.objects.all().delete()


@pytest.fixture
def default_rules(no_rules):
    import_module("controlplane.fleet.migrations.0008_compatibility_rules").install(apps, connection.schema_editor())


def told(*reports):
    take_report("n1", NodeReport(version="1", engines=list(reports)), NOW)


@pytest.fixture
def two(fleet):
    assert fleet.post("/engines", {**ENGINE, "name": "e2", "url": "http://10.0.0.1:8001"}).status_code == 201
    return fleet


def test_a_rule_is_made_changed_and_deleted_with_an_audit_and_no_revision(admin, no_rules):
    made = admin.post("/compatibility-rules", RULE)
    assert (made.status_code, made.json()["patch"]) == (201, {})
    assert admin.patch("/compatibility-rules/one-version", {"enabled": False}).json()["item"]["enabled"] is False
    shown = admin.get("/compatibility-rules/one-version").json()
    assert (shown["rule"]["every"], shown["rule"]["never"], shown["stops"]) == (["version"], None, True)
    assert admin.delete("/compatibility-rules/one-version").status_code == 200
    actions = AuditEntry.objects.filter(noun="compatibility rule").order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["create", "update", "delete"]


def test_a_dry_run_keeps_nothing(admin, no_rules):
    answer = admin.post("/compatibility-rules?dry_run=true", RULE)
    assert (answer.status_code, answer.json()["changed"]) == (201, True)
    assert not CompatibilityRule.objects.exists()


def test_a_rule_that_says_nothing_is_refused_at_its_place(admin, no_rules):
    assert problem_paths(admin.post("/compatibility-rules", {**RULE, "rule": {}})) == {"/rule"}
    never = {"never": {"kind": "triton", "vllm": ">=newest"}}
    assert problem_paths(admin.post("/compatibility-rules", {**RULE, "rule": never, "reason": ""})) == {
        "/rule/never/vllm",
        "/reason",
    }


def test_two_versions_in_a_pool_stop_and_each_is_named(two, default_rules):
    told(EngineReport("e1", "up", version="0.11.0"), EngineReport("e2", "up", version="0.12.0"))
    answer = two.get("/pools/short/compatibility").json()
    assert answer["may_serve"] is False
    assert answer["findings"][0] == {
        "rule": "mixed-versions",
        "state": "broken",
        "stops": True,
        "message": "pool 'short': its engines differ in version: 0.11.0 on e1; 0.12.0 on e2; "
        "two versions differ in defaults, in API fields and in what they answer",
        "engines": ["e1", "e2"],
    }
    assert [engine["facts"]["version"] for engine in answer["engines"]] == ["0.11.0", "0.12.0"]


def test_what_no_agent_told_is_unknown_and_stops_nothing_by_itself(two, default_rules):
    answer = two.get("/pools/short/compatibility").json()
    assert answer["may_serve"] is True
    assert {finding["state"] for finding in answer["findings"]} == {"unknown"}
    assert "mixed-versions" in {finding["rule"] for finding in answer["findings"]}


def test_an_engine_that_takes_no_work_mixes_with_none_until_it_is_a_candidate(two, default_rules):
    told(EngineReport("e1", "up", version="0.11.0"), EngineReport("e2", "up", version="0.12.0"))
    two.post("/engines/e2/cordon")
    assert not [finding for finding in judge(["short"]) if finding.state == "broken"]
    (finding,) = [finding for finding in judge([], ["e2"]) if finding.state == "broken"]
    assert (finding.rule, finding.stops, finding.subjects) == ("mixed-versions", True, ("e1", "e2"))


def test_a_known_bad_pair_of_triton_and_vllm_stops(fleet, default_rules):
    fleet.patch("/engines/e1", {"kind": "triton"})
    told(EngineReport("e1", "up", version="2.61.0", versions={"vllm": "0.11.2"}))
    (finding,) = [finding for finding in judge(["short"]) if finding.stops]
    assert (finding.rule, finding.subjects) == ("triton-25.09-vllm-0.11.2", ("e1",))
    assert "frontend 2.61.0 with kind triton with vllm 0.11.2" in finding.message


def test_a_dropped_api_field_and_another_chat_template_stop(two, default_rules):
    template = {"chat_template": "a" * 64}
    told(
        EngineReport("e1", "up", digests=template, probes={"json_schema": "failed"}),
        EngineReport("e2", "up", digests={"chat_template": "b" * 64}, max_length_tokens=4096),
    )
    stopping = {finding.rule: finding for finding in judge(["short"]) if finding.stops}
    assert stopping.keys() == {"mixed-chat-templates", "response-format-dropped"}
    assert "aaaaaaaaaaaa… on e1" in stopping["mixed-chat-templates"].message


def test_engines_that_take_less_than_their_model_are_told_by_arguments_or_report(two, default_rules):
    told(
        EngineReport("e1", "up", arguments={"max_model_len": "4096"}),
        EngineReport("e2", "up", max_length_tokens=4096, arguments={"max_model_len": "auto"}),
    )
    short = [finding for finding in judge(["short"]) if finding.rule == "length-of-model"]
    assert [(finding.subjects, finding.state) for finding in short] == [(("e1",), "broken"), (("e2",), "broken")]


def test_a_rule_that_is_switched_off_has_nothing_against_anyone(two, no_rules):
    told(EngineReport("e1", "up", version="1"), EngineReport("e2", "up", version="2"))
    two.post("/compatibility-rules", RULE)
    assert len(judge(["short"])) == 1
    two.patch("/compatibility-rules/one-version", {"enabled": False})
    assert judge(["short"]) == []


def test_a_pool_that_does_not_exist_is_not_found(fleet):
    assert fleet.get("/pools/none/compatibility").status_code == 404


def test_installing_twice_leaves_what_a_site_has_changed(default_rules, admin):
    admin.patch("/compatibility-rules/mixed-versions", {"stops": False})
    import_module("controlplane.fleet.migrations.0008_compatibility_rules").install(apps, connection.schema_editor())
    assert CompatibilityRule.objects.get(name="mixed-versions").stops is False
