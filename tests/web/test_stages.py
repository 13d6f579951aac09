"""Staged publishes: begun from the review of a change, followed, given to all or taken back."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.configs import publisher, stage_watch
from controlplane.configs.models import Stage
from controlplane.configs.stage_watch import is_healthy
from controlplane.core.changes import sections
from controlplane.core.errors import Refused
from controlplane.core.models import AuditEntry
from controlplane.telemetry import query
from controlplane.tenants import services as tenants
from controlplane.web.forms.stage import failures_expression
from tests.web.conftest import acknowledge, digest_of, new_target, write
from tests.web.staged import begun
from wire.problems import Problem

pytestmark = pytest.mark.django_db
TYPED = {
    "change": '{"tenants": {"acme": {"tpm_limit": 7}}}', "which": "named", "targets": "gateway/edge-1", "watch": "",
    "then": "wait", "expires_ms": "1h",
}  # fmt: skip


@pytest.fixture
def gateways(acme: str) -> list[Any]:
    found = [new_target("gateway", f"edge-{number}") for number in (1, 2, 3, 4)]
    publisher.publish()
    for target in found:
        acknowledge(target)
    return found


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def applied(client: Client, path: str, **typed: Any) -> str:
    reviewed = client.post(path, {**typed, "step": "review"}).content.decode()
    answer = client.post(path, {**typed, "step": "apply", "digest": digest_of(reviewed), "reason": "a test"})
    assert answer.status_code == 302, answer.content.decode()
    return str(answer["Location"])


def test_the_review_of_a_change_offers_an_admin_to_stage_it(
    gateways: list[Any], admin: Client, operator: Client
) -> None:
    typed = {"weight": "1", "tpm_limit": "9", "time_zone": "UTC", "step": "review"}
    reviewed = admin.post("/tenants/acme/edit/", typed).content.decode()
    found = re.search(r'name="change" value="([^"]*)"', reviewed)
    assert found
    change = html.unescape(found[1])
    assert json.loads(change) == {"tenants": {"acme": {"tpm_limit": 9}}}
    assert "/stages-new/" not in operator.post("/tenants/acme/edit/", typed).content.decode()
    form = admin.post("/stages-new/", {"step": "begin", "change": change}).content.decode()
    assert "<del>60,000</del>" in form
    assert "<ins>9</ins>" in form
    assert "errorlist" not in form


@pytest.mark.parametrize("path", ["/tenants/acme/temporary-limits/", "/targets/{target}/revoke/"])
def test_what_is_state_cannot_be_staged_and_is_not_offered(path: str, gateways: list[Any], admin: Client) -> None:
    address = path.format(target=gateways[0].pk)
    typed = {"tpm_limit": "9", "expires_in_seconds": "1", "step": "review"}
    reviewed = admin.post(address, typed).content.decode()
    assert 'value="apply"' in reviewed
    assert "/stages-new/" not in reviewed


def test_what_has_no_form_that_people_could_write_is_reviewed_and_not_offered(
    gateways: list[Any], admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_content: Any) -> Any:
        raise Refused("it is of an older version")

    section = sections["tenants"]
    assert section.written is not None
    older = replace(section, written=replace(section.written, of_content=refuse))
    monkeypatch.setitem(sections, "tenants", older)
    typed = {"weight": "1", "tpm_limit": "9", "time_zone": "UTC", "step": "review"}
    reviewed = admin.post("/tenants/acme/edit/", typed).content.decode()
    assert 'value="apply"' in reviewed
    assert "/stages-new/" not in reviewed


def test_a_stage_is_begun_followed_and_given_to_all(gateways: list[Any], admin: Client) -> None:
    assert applied(admin, "/stages-new/", **TYPED).startswith("/stages/?change=")
    stage = Stage.objects.get()
    assert (stage.targets, stage.reason) == (["gateway/edge-1"], "a test")
    publisher.publish()
    acknowledge(gateways[0])
    listed = page(admin, "/stages/")
    assert "running" in listed
    shown = page(admin, f"/stages/{stage.pk}/")
    assert "<ins>7</ins>" in shown
    rows = shown[shown.index("Published, answered, runs it") :]
    assert "edge-1" in rows
    assert "edge-2" not in rows[: rows.index("</table>")]
    assert "steps-applied" in page(admin, f"/stages/{stage.pk}/panel/")
    assert tenants.describe(tenants.get("acme"))["tpm_limit"] == 60_000
    assert "/stages-new/" not in page(admin, f"/stages/{stage.pk}/promote/")
    applied(admin, f"/stages/{stage.pk}/promote/")
    assert tenants.describe(tenants.get("acme"))["tpm_limit"] == 7
    ended = page(admin, f"/stages/{stage.pk}/")
    assert "given to all" in ended
    assert "/take-back/" not in ended
    assert admin.get(f"/stages/{stage.pk}/take-back/").status_code == 409


def test_an_operator_takes_a_stage_back_and_gives_none_to_all(
    gateways: list[Any], operator: Client, viewer: Client
) -> None:
    stage = begun("gateway/edge-1", patch={"tenants": {"acme": {"tpm_limit": 7}}})
    shown = page(operator, f"/stages/{stage.pk}/")
    assert "/take-back/" in shown
    assert "/promote/" not in shown
    assert "/take-back/" not in page(viewer, f"/stages/{stage.pk}/")
    applied(operator, f"/stages/{stage.pk}/take-back/")
    assert "taken back" in page(operator, "/stages/")
    assert AuditEntry.objects.filter(noun="stage").count() == 2


@pytest.mark.parametrize(
    ("which", "amount", "names"),
    [("first", "2", ["edge-1", "edge-2"]), ("share", "26", ["edge-1", "edge-2"]), ("share", "1", ["edge-1"])],
)
def test_targets_are_chosen_by_number_or_by_share(
    which: str, amount: str, names: list[str], gateways: list[Any], admin: Client
) -> None:
    applied(admin, "/stages-new/", **{**TYPED, "which": which, "amount": amount})
    assert Stage.objects.get().targets == [f"gateway/{name}" for name in names]


def test_it_is_watched_and_given_to_all_by_itself(gateways: list[Any], admin: Client) -> None:
    watched = {"watch": "failures", "failures_permille": "1.5", "for_ms": "10m", "then": "promote"}
    applied(admin, "/stages-new/", **{**TYPED, **watched})
    stage = Stage.objects.get()
    assert (stage.for_seconds, stage.promotes) == (600, True)
    assert "edge\\\\-1" in stage.expression
    assert stage.expression.endswith("< 0.015")
    shown = page(admin, f"/stages/{stage.pk}/")
    assert "once it is healthy" in shown
    Stage.objects.update(healthy_since=timezone.now())
    assert "once it is healthy" not in page(admin, f"/stages/{stage.pk}/panel/")


# Changed fields, and what is said at one of them.
REFUSED = [
    ({"change": "tenants: [1"}, "no YAML at line 2"),
    ({"change": "[]"}, "Give a map of sections"),
    ({"change": "tenants: {acme: {tpm_limit: -1}}"}, "tpm_limit"),
    ({"change": "tenants: {}"}, "it changes nothing"),
    ({"change": "colours: {red: {}}"}, "colours"),
    ({"targets": "gateway/none"}, "there is no target"),
    ({"targets": "edge-1"}, "Give kind and name, not “edge-1”."),
    ({"targets": ""}, "Name at least one target."),
    ({"which": "first"}, "Give how many."),
    ({"which": "share", "amount": "101"}, "Give 1 to 100."),
    ({"then": "promote"}, "nothing says when"),
    ({"watch": "own", "for_ms": "1m"}, "Give what is watched."),
    ({"watch": "own", "expression": "up(", "for_ms": "1m"}, "unclosed left parenthesis"),
    ({"watch": "own", "expression": "up > 0", "for_ms": "2h"}, "before that"),
    ({"expires_ms": "1s"}, "10"),
    ({"expires_ms": "soon"}, "give a duration such as 30s"),
]


def test_the_form_refuses_with_the_field_and_keeps_what_was_typed(gateways: list[Any], admin: Client) -> None:
    for typed, said in REFUSED:
        answer = admin.post("/stages-new/", {**TYPED, **typed, "step": "review"})
        assert answer.status_code == 422, typed
        shown = answer.content.decode()
        errors = re.findall(
            r'<ul class="errorlist[^>]*>(.*?)</ul>|<div class="errors"[^>]*>(.*?)</div>', shown, re.DOTALL
        )
        assert any(said in html.unescape("".join(each)) for each in errors), (typed, errors)
        for text in typed.values():
            assert html.escape(text) in shown or html.escape(text, quote=False) in shown, typed
    assert not Stage.objects.exists()


def test_the_review_shows_what_the_targets_get_beside_what_they_have(gateways: list[Any], admin: Client) -> None:
    reviewed = admin.post("/stages-new/", {**TYPED, "step": "review"}).content.decode()
    preview = reviewed[reviewed.index('id="preview"') : reviewed.index('id="review"')]
    assert "<del>60,000</del>" in preview
    assert "<ins>7</ins>" in preview


def test_a_second_stage_is_refused_and_the_first_one_named(gateways: list[Any], admin: Client) -> None:
    stage = begun("gateway/edge-2")
    assert f"Stage {stage.pk} runs: one at a time." in page(admin, "/stages-new/")
    answer = admin.post("/stages-new/", {**TYPED, "step": "review"})
    assert f"stage {stage.pk} runs" in answer.content.decode()


def test_a_target_that_refuses_says_why(gateways: list[Any], viewer: Client) -> None:
    stage = begun("gateway/edge-1", patch={"tenants": {"acme": {"tpm_limit": 7}}})
    publisher.publish()
    acknowledge(gateways[0], [Problem("/tenants/acme", "reference", "<script>no</script>")])
    shown = page(viewer, f"/stages/{stage.pk}/")
    assert "steps-refused" in shown
    assert "&lt;script&gt;no&lt;/script&gt;" in shown
    stage_watch.look(Stage.objects.get().look_at)
    assert "taken back" in page(viewer, "/stages/")


def test_without_a_stage_the_page_says_how_one_begins(acme: str, viewer: Client) -> None:
    assert "The review of each change" in page(viewer, "/stages/")
    assert viewer.get("/stages/7/").status_code == 404


def test_the_watch_of_failures_is_one_that_the_store_answers(settings: Any, tmp_path: Any) -> None:
    settings.DATA_DIR = tmp_path
    expression = failures_expression(["gateway/edge-1", "gateway/a.b"], 10)
    now_ms = int(timezone.now().timestamp() * 1000)
    # No request at all is no failure.
    assert is_healthy(expression, query.instant(expression, now_ms))


def test_a_change_of_a_tenant_with_any_name_shows_as_itself(gateways: list[Any], admin: Client) -> None:
    write(lambda unit: tenants.update(unit, "acme", {"time_zone": "Europe/Istanbul"}))
    typed = {**TYPED, "change": 'tenants: {acme: {time_zone: "<script>alert(1)</script>"}}', "step": "review"}
    shown = admin.post("/stages-new/", typed).content.decode()
    assert "<script>alert" not in shown
