"""Every page: who may open it, who may send its form, and where the others are sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.urls import URLPattern, reverse

from controlplane.alerts.models import DeliveryState
from controlplane.alerts.services.rules import RULES
from controlplane.api.api import api
from controlplane.configs import publisher
from controlplane.core.models import AuditEntry, Role, User
from controlplane.fleet.services import acts
from controlplane.telemetry.writers import METRIC_WRITERS
from controlplane.tenants import services as tenants
from controlplane.web.navigation import GROUPS
from controlplane.web.urls import urlpatterns
from tests.test_pages import fetched_from_outside
from tests.web.alerting import quiet
from tests.web.batches import batch_of
from tests.web.conftest import new_target, write
from tests.web.diagnosed import found, numbers_of, policy
from tests.web.hardware import add_engine, fault, node, receiver
from tests.web.model_files import with_manifest
from tests.web.repairing import repair_of
from tests.web.rolling import restart_of
from tests.web.staged import routing_nouns
from tests.web.telling import refusal
from tests.web.traffic import traffic_nouns
from tests.web.trying import done_run, waiting_run
from tests.web.versioned import passive_version

pytestmark = [pytest.mark.both_databases, pytest.mark.timeout(600)]
WORDS_OF_PROMETHEUS = {"alertname"}
# Path by name in the URL configuration, and the role that may open it. What stands in braces is made by the fixture.
PAGES = {
    "tenants": ("/tenants/", Role.VIEWER),
    "new_tenant": ("/tenants-new/", Role.OPERATOR),
    "tenant": ("/tenants/acme/", Role.VIEWER),
    "edit_tenant": ("/tenants/acme/edit/", Role.OPERATOR),
    "give_temporary_limits": ("/tenants/acme/temporary-limits/", Role.OPERATOR),
    "end_temporary_limits": ("/tenants/acme/temporary-limits/end/", Role.OPERATOR),
    "new_key": ("/tenants/acme/keys/new/", Role.ADMIN),
    "rotate_key": ("/tenants/acme/keys/{key}/rotate/", Role.ADMIN),
    "block_key": ("/tenants/acme/keys/{key}/block/", Role.OPERATOR),
    "unblock_key": ("/tenants/acme/keys/{key}/unblock/", Role.ADMIN),
    "pools": ("/pools/", Role.VIEWER),
    "pools_panel": ("/pools-panel/", Role.VIEWER),
    "new_pool": ("/pools-new/", Role.OPERATOR),
    "pool": ("/pools/chat/", Role.VIEWER),
    "pool_panel": ("/pools/chat/live/", Role.VIEWER),
    "edit_pool": ("/pools/chat/edit/", Role.OPERATOR),
    "delete_pool": ("/pools/unused/delete/", Role.OPERATOR),
    "models": ("/models/", Role.VIEWER),
    "new_model": ("/models-new/", Role.ADMIN),
    "model": ("/models/chat-v1/", Role.VIEWER),
    "edit_model": ("/models/chat-v1/edit/", Role.ADMIN),
    "delete_model": ("/models/unused/delete/", Role.ADMIN),
    "new_alias": ("/aliases-new/", Role.ADMIN),
    "edit_alias": ("/aliases/llama/edit/", Role.ADMIN),
    "delete_alias": ("/aliases/llama/delete/", Role.ADMIN),
    "priority_classes": ("/priority-classes/", Role.VIEWER),
    "priority_classes_panel": ("/priority-classes-panel/", Role.VIEWER),
    "new_priority_class": ("/priority-classes-new/", Role.OPERATOR),
    "edit_priority_class": ("/priority-classes/interactive/edit/", Role.OPERATOR),
    "delete_priority_class": ("/priority-classes/interactive/delete/", Role.OPERATOR),
    "cache_policies": ("/caches/", Role.VIEWER),
    "cache_policies_panel": ("/caches-panel/", Role.VIEWER),
    "new_cache_policy": ("/caches-new/", Role.OPERATOR),
    "edit_cache_policy": ("/caches/faq/edit/", Role.OPERATOR),
    "delete_cache_policy": ("/caches/faq/delete/", Role.OPERATOR),
    "session_limits": ("/session-limits/", Role.VIEWER),
    "session_limits_panel": ("/session-limits-panel/", Role.VIEWER),
    "new_session_limits": ("/session-limits-new/", Role.OPERATOR),
    "edit_session_limits": ("/session-limits/agents/edit/", Role.OPERATOR),
    "delete_session_limits": ("/session-limits/agents/delete/", Role.OPERATOR),
    "account": ("/account/", Role.VIEWER),
    "own_password": ("/account/password/", Role.VIEWER),
    "end_own_log_ins": ("/account/end-log-ins/", Role.VIEWER),
    "users": ("/users/", Role.VIEWER),
    "new_user": ("/users-new/", Role.ADMIN),
    "edit_user": ("/users/lin/edit/", Role.ADMIN),
    "reset_password": ("/users/lin/password/", Role.ADMIN),
    "end_log_ins": ("/users/lin/end-log-ins/", Role.ADMIN),
    "api_tokens": ("/api-tokens/", Role.VIEWER),
    "new_api_token": ("/api-tokens-new/", Role.VIEWER),
    "audit": ("/audit/?noun=tenant", Role.VIEWER),
    "metric_writers": ("/metric-writers/", Role.VIEWER),
    "new_metric_writer": ("/metric-writers-new/", Role.ADMIN),
    "edit_metric_writer": ("/metric-writers/lab/edit/", Role.ADMIN),
    "rotate_metric_writer": ("/metric-writers/lab/rotate/", Role.ADMIN),
    "delete_metric_writer": ("/metric-writers/lab/delete/", Role.ADMIN),
    "sso": ("/single-sign-on/", Role.VIEWER),
    "check_sso": ("/single-sign-on/check/", Role.ADMIN),
    "new_rollout": ("/rollouts-new/", Role.ADMIN),
    "targets": ("/targets/", Role.VIEWER),
    "join": ("/targets/join/", Role.ADMIN),
    "revoke": ("/targets/{target}/revoke/", Role.ADMIN),
    "revisions": ("/revisions/", Role.VIEWER),
    "revision": ("/revisions/1/", Role.VIEWER),
    "rollback": ("/revisions/1/rollback/", Role.OPERATOR),
    "differences": ("/revisions/compare/?from=1&to=2", Role.VIEWER),
    "import_configuration": ("/configuration-import/", Role.ADMIN),
    "stages": ("/stages/", Role.VIEWER),
    "new_stage": ("/stages-new/", Role.ADMIN),
    "stage": ("/stages/{stage}/", Role.VIEWER),
    "stage_panel": ("/stages/{stage}/panel/", Role.VIEWER),
    "promote_stage": ("/stages/{stage}/promote/", Role.ADMIN),
    "take_back_stage": ("/stages/{stage}/take-back/", Role.OPERATOR),
    "breakers": ("/breakers/", Role.VIEWER),
    "breakers_panel": ("/breakers-panel/", Role.VIEWER),
    "new_override": ("/breakers/overrides-new/", Role.OPERATOR),
    "end_override": ("/breakers/overrides/{override}/end/", Role.OPERATOR),
    "routes": ("/routes/", Role.VIEWER),
    "routes_panel": ("/routes-panel/", Role.VIEWER),
    "new_route": ("/routes-new/", Role.OPERATOR),
    "test_route": ("/routes-test/", Role.VIEWER),
    "edit_route": ("/routes/first/edit/", Role.OPERATOR),
    "delete_route": ("/routes/first/delete/", Role.OPERATOR),
    "move_route": ("/routes/first/move/down/", Role.OPERATOR),
    "targets_panel": ("/targets/panel/", Role.VIEWER),
    "revisions_panel": ("/revisions/panel/", Role.VIEWER),
    "convergence": ("/convergence/?change={change}", Role.VIEWER),
    "overview": ("/overview/", Role.VIEWER),
    "overview_panel": ("/overview-panel/", Role.VIEWER),
    "overview_lately_panel": ("/overview-lately/", Role.VIEWER),
    "fleet": ("/fleet/", Role.VIEWER),
    "fleet_panel": ("/fleet-panel/", Role.VIEWER),
    "node": ("/fleet/rack-1/", Role.VIEWER),
    "cordon_node": ("/fleet/rack-1/cordon/", Role.OPERATOR),
    "uncordon_node": ("/fleet/rack-1/uncordon/", Role.OPERATOR),
    "new_node": ("/fleet-new/", Role.OPERATOR),
    "delete_node": ("/fleet/{unused_node}/delete/", Role.OPERATOR),
    "new_engine": ("/engines-new/", Role.OPERATOR),
    "edit_engine": ("/engines/llama-a/edit/", Role.OPERATOR),
    "engine_key": ("/engines/llama-a/key/", Role.OPERATOR),
    "delete_engine": ("/engines/{unused_engine}/delete/", Role.OPERATOR),
    "cordon_engine": ("/engines/llama-a/cordon/", Role.OPERATOR),
    "uncordon_engine": ("/engines/llama-a/uncordon/", Role.OPERATOR),
    "acts": ("/acts/", Role.VIEWER),
    "choose_act": ("/acts-new/?engine=llama-a", Role.OPERATOR),
    "ask_act": ("/acts-new/sleep/?engine=llama-a", Role.OPERATOR),
    "cancel_act": ("/acts/{act}/cancel/", Role.OPERATOR),
    "model_files": ("/model-files/", Role.VIEWER),
    "ask_model_files": ("/model-files/check/?model=meta-llama/Llama-3.1-8B", Role.OPERATOR),
    "diagnosis": ("/diagnosis/", Role.VIEWER),
    "finding": ("/diagnosis/findings/{finding}/", Role.VIEWER),
    "change_lever": ("/diagnosis/findings/{finding}/kv_admit/apply/?of={lever}", Role.OPERATOR),
    "levers": ("/diagnosis/levers/", Role.VIEWER),
    "new_lever_policy": ("/diagnosis/policies-new/", Role.ADMIN),
    "edit_lever_policy": ("/diagnosis/policies/kv/edit/", Role.ADMIN),
    "delete_lever_policy": ("/diagnosis/policies/kv/delete/", Role.ADMIN),
    "rollouts": ("/rollouts/", Role.VIEWER),
    "rollout": ("/rollouts/{rollout}/", Role.VIEWER),
    "change_rollout": ("/rollouts/{rollout}/pause/", Role.OPERATOR),
    "incidents": ("/incidents/", Role.VIEWER),
    "incident": ("/incidents/{incident}/", Role.VIEWER),
    "resolve_incident": ("/incidents/{incident}/resolve/", Role.OPERATOR),
    "incident_evidence": ("/incidents/{incident}/evidence/", Role.VIEWER),
    "acknowledge_incident": ("/incidents/{incident}/acknowledge/", Role.OPERATOR),
    "assign_incident": ("/incidents/{incident}/assign/", Role.OPERATOR),
    "snooze_incident": ("/incidents/{incident}/snooze/", Role.OPERATOR),
    "comment_on_incident": ("/incidents/{incident}/comment/", Role.OPERATOR),
    "silences": ("/silences/", Role.VIEWER),
    "new_silence": ("/silences-new/?incident={incident}", Role.OPERATOR),
    "edit_silence": ("/silences/quiet/edit/", Role.OPERATOR),
    "expire_silence": ("/silences/quiet/expire/", Role.OPERATOR),
    "maintenance_windows": ("/maintenance-windows/", Role.VIEWER),
    "new_window": ("/maintenance-windows-new/", Role.OPERATOR),
    "edit_window": ("/maintenance-windows/quiet/edit/", Role.OPERATOR),
    "delete_window": ("/maintenance-windows/quiet/delete/", Role.OPERATOR),
    "alert_routes": ("/alert-routes/?labels=alertname%3DX&source=rule", Role.VIEWER),
    "new_alert_route": ("/alert-routes-new/", Role.ADMIN),
    "edit_alert_route": ("/alert-routes/quiet/edit/", Role.ADMIN),
    "delete_alert_route": ("/alert-routes/quiet/delete/", Role.ADMIN),
    "new_inhibition": ("/inhibitions-new/", Role.ADMIN),
    "edit_inhibition": ("/inhibitions/quiet/edit/", Role.ADMIN),
    "delete_inhibition": ("/inhibitions/quiet/delete/", Role.ADMIN),
    "resend_delivery": ("/deliveries/{delivery}/resend/", Role.OPERATOR),
    "edit_policy": ("/cordon-policy/edit/", Role.ADMIN),
    "receivers": ("/receivers/", Role.VIEWER),
    "receiver": ("/receivers/oncall/", Role.VIEWER),
    "new_receiver": ("/receivers-new/?kind=webhook", Role.ADMIN),
    "resend_failed": ("/receivers/oncall/resend-failed/", Role.OPERATOR),
    "edit_receiver": ("/receivers/oncall/edit/", Role.ADMIN),
    "switch_receiver": ("/receivers/oncall/switch/", Role.ADMIN),
    "rotate_secret": ("/receivers/oncall/rotate-secret/", Role.ADMIN),
    "test_receiver": ("/receivers/oncall/test/", Role.ADMIN),
    "repairs": ("/repairs/", Role.VIEWER),
    "cancel_repair": ("/repairs/{repair}/cancel/", Role.OPERATOR),
    "begin_repair": ("/repairs/{repair}/begin/", Role.OPERATOR),
    "reset_repair_breaker": ("/repairs-breaker/reset/", Role.OPERATOR),
    "set_repair_mode": ("/repairs-mode/act/", Role.ADMIN),
    "rules": ("/rules/", Role.VIEWER),
    "new_rule": ("/rules-new/", Role.OPERATOR),
    "import_rules": ("/rules-import/", Role.OPERATOR),
    "rule": ("/rules/Full/", Role.VIEWER),
    "edit_rule": ("/rules/Full/edit/", Role.OPERATOR),
    "switch_rule": ("/rules/Full/switch/", Role.OPERATOR),
    "delete_rule": ("/rules/Full/delete/", Role.OPERATOR),
    "batches": ("/batches/", Role.VIEWER),
    "cancel_batch": ("/batches/{batch}/cancel/", Role.OPERATOR),
    "decisions": ("/decisions/", Role.VIEWER),
    "decision": ("/decisions/request/?id=r-1", Role.VIEWER),
    "planner": ("/planner/", Role.VIEWER),
    "plan_fan_out": ("/planner/fan-out/", Role.VIEWER),
    "plan_promise": ("/planner/promise/", Role.VIEWER),
    "runbooks": ("/docs/runbooks/", Role.VIEWER),
    "runbook": ("/docs/runbooks/kv-cache-full/", Role.VIEWER),
    "recording_rules": ("/recording-rules/", Role.VIEWER),
    "edit_recording_rules": ("/recording-rules/edit/", Role.OPERATOR),
    "reset_recording_rules": ("/recording-rules/reset/", Role.OPERATOR),
    "versions": ("/model-versions/", Role.VIEWER),
    "retire_version": ("/model-versions/{version}/retire/", Role.ADMIN),
    "bring_version_back": ("/model-versions/{version}/bring-back/", Role.ADMIN),
    "compatibility": ("/compatibility/", Role.VIEWER),
    "what_ifs": ("/what-if/", Role.VIEWER),
    "new_what_if": ("/what-if-new/", Role.OPERATOR),
    "what_if": ("/what-if/{tried}/", Role.VIEWER),
    "cancel_what_if": ("/what-if/{what_if}/cancel/", Role.OPERATOR),
    "use_what_if": ("/what-if/{tried}/use/", Role.OPERATOR),
}
# The way in and out, the start page that only leads on, and the stream, which answers 401 (see test_live).
OPEN_TO_ALL = {"home", "login", "logout", "set_language", "live", "oidc_begin", "oidc_callback"}
# Who may open it depends on whose token it is (see test_people).
OPEN_TO_ALL |= {"revoke_api_token"}

AFTER_A_WRITE = (
    "tenant", "pools", "pool", "models", "model", "priority_classes", "cache_policies", "session_limits", "routes",
    "breakers", "stages", "targets", "fleet", "node", "acts", "model_files", "repairs", "versions", "batches",
    "revisions", "stage", "rollouts", "rollout", "finding", "what_if",
)  # fmt: skip


@pytest.fixture
def fleet(acme: str) -> dict[str, object]:
    return fill(acme)


def fill(acme: str) -> dict[str, object]:
    """A row of each noun, about a tenant of that name; answers what stands in the braces of PAGES."""
    key, _secret = write(lambda unit: tenants.create_key(unit, acme, {"label": "first"}))
    node("rack-1", engines=["llama-a"])
    write(lambda unit: tenants.give_temporary_limits(unit, acme, {"tpm_limit": 9, "expires_in_seconds": 3600}))
    publisher.publish()
    write(lambda unit: tenants.update(unit, acme, {"tpm_limit": 5}))
    publisher.publish()
    change = AuditEntry.objects.filter(noun="tenant").latest("pk").change_id
    receiver("oncall")
    incident = fault("rack-1")
    failed = incident.deliveries.get()
    failed.state = DeliveryState.FAILED
    failed.save()
    target = new_target("gateway", "edge-1")
    new_target("node", "rack-1")
    refusal("r-1")
    batch = batch_of("acme")
    version = passive_version("chat")
    write(lambda unit: RULES.create(unit, "Full", {"expr": "kv > 0.9"}))
    with_manifest("rack-1", state="partial")
    act = write(lambda unit: acts.create(unit, {"action": "sleep", "engine": "llama-a"}))
    policy("kv")
    quiet("quiet")
    traffic_nouns()
    User.objects.create(username="lin")
    write(lambda unit: METRIC_WRITERS.create(unit, "lab", {"matchers": {"cluster": "lab"}}))
    return {
        "rollout": restart_of("llama-a").pk, "finding": (finding := found()).pk, "lever": numbers_of(finding),
        "what_if": waiting_run().pk, "tried": done_run("chat").pk,
        "act": act.act_id, "repair": repair_of("rack-1").pk, "batch": batch.pk, "version": version,
        **routing_nouns("chat", "gateway/edge-1"),
        "key": key.pk, "target": target.pk, "change": change, "incident": incident.pk, "delivery": failed.pk,
        # Those that nothing uses can be deleted.
        "unused_node": node("rack-9").name, "unused_engine": add_engine("llama-z", None).name,
    }  # fmt: skip


def test_the_table_here_names_every_page() -> None:
    names = {pattern.name for pattern in urlpatterns if isinstance(pattern, URLPattern)}
    assert names == PAGES.keys() | OPEN_TO_ALL


# All pages in one test each: the fleet, which none of them may change, is made once.
@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_a_page_opens_for_its_role_and_above_only(
    role: Role, fleet: dict[str, object], browser_of: Callable[[Role | None], Client]
) -> None:
    browser, wrong = browser_of(role), []
    for name, (path, needed) in PAGES.items():
        answer = browser.get(path.format(**fleet))
        refused = f"This page needs the role {needed.label}; yours is {role.label}."
        if answer.status_code != (200 if role.covers(needed) else 403):
            wrong.append((name, str(answer.status_code)))
        elif not role.covers(needed) and refused not in answer.content.decode():
            wrong.append((name, "does not say why"))
    assert not wrong


def test_a_stranger_is_led_to_the_log_in_and_then_back(fleet: dict[str, object], outsider: Client) -> None:
    for path, _needed in PAGES.values():
        for ask in (outsider.get, outsider.post):
            answer = ask(path.format(**fleet))
            assert answer.status_code == 302, path
            assert answer["Location"].startswith("/log-in/?next=/"), path


def test_a_form_sent_by_a_viewer_changes_nothing(fleet: dict[str, object], viewer: Client) -> None:
    before = (tenants.describe(tenants.get("acme")), AuditEntry.objects.count())
    for path, needed in PAGES.values():
        if needed is not Role.VIEWER:
            form = {"step": "apply", "reason": "x", "weight": "9", "name": "new"}
            assert viewer.post(path.format(**fleet), form).status_code == 403, path
    assert (tenants.describe(tenants.get("acme")), AuditEntry.objects.count()) == before


def test_a_form_without_its_csrf_token_is_refused(acme: str, browser_of: Callable[[Role | None], Client]) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = browser_of(Role.OPERATOR).cookies
    answer = strict.post("/tenants/acme/edit/", {"step": "review", "weight": "2"})
    assert answer.status_code == 403
    assert "Go back, load the page anew" in answer.content.decode()


def test_a_panel_asked_for_after_the_session_ended_reloads_the_whole_page(outsider: Client) -> None:
    answer = outsider.get("/targets/", headers={"hx-request": "true"})
    assert answer["HX-Refresh"] == "true"
    assert answer.content == b""


@pytest.mark.parametrize(
    "path",
    [
        "/tenants/nobody/",
        "/tenants/a%00b/",
        "/revisions/99/",
        f"/revisions/{10**30}/",
        f"/tenants/acme/keys/{10**30}/block/",
        f"/targets/{10**30}/revoke/",
        "/convergence/",
        "/convergence/?change=x",
        "/fleet/nobody/",
        "/fleet/nobody/cordon/",
        "/engines/nobody/uncordon/",
        f"/incidents/{10**30}/",
        "/incidents/99/resolve/",
        "/receivers/nobody/edit/",
        "/receivers/nobody/test/",
        "/deliveries/6f1f3c9e-5b0a-4c83-9d3e-0b8f5a2c7d14/resend/",
        "/no-page/",
    ],
)
def test_what_does_not_exist_is_a_page_that_says_so(path: str, acme: str, admin: Client) -> None:
    answer = admin.get(path)
    assert answer.status_code == 404
    assert "Not found" in answer.content.decode()
    # Whoever is logged in goes on from there.
    assert 'href="/targets/"' in answer.content.decode()
    assert "admin-person" in answer.content.decode()


def test_an_unknown_address_tells_a_stranger_nothing_of_the_fleet(acme: str, outsider: Client) -> None:
    page = outsider.get("/no-page/").content.decode()
    assert "Not found" in page
    assert "data-live" not in page


def test_an_admin_opens_all_which_fetch_nothing_outside_are_not_cached_and_show_a_rest_call_that_exists(
    fleet: dict[str, object], admin: Client
) -> None:
    calls = api.get_openapi_schema()["paths"].items()
    silent = set()
    for name, (page_path, _needed) in PAGES.items():
        answer = admin.get(page_path.format(**fleet))
        page = answer.content.decode()
        assert answer.status_code == 200, name
        assert fetched_from_outside(page) == [], name
        assert "script-src 'self'" in answer["Content-Security-Policy"], name
        assert "no-store" in answer["Cache-Control"], name
        lines = list(_curl_lines(page))
        # Parts of pages, which show their calls.
        if not lines and not name.endswith(("convergence", "_panel", "incident_evidence")):
            silent.add(name)
        for method, path in lines:
            assert any(method.lower() in call for template, call in calls if _fits(template, path)), (method, path)
    assert not silent


def test_no_page_of_the_navigation_says_that_it_lies_below_another(fleet: dict[str, object], admin: Client) -> None:
    entries = [entry.view for _label, group in GROUPS for entry in group]
    assert [view for view in entries if 'class="crumb"' in admin.get(reverse(view)).content.decode()] == []


def test_a_page_marks_in_the_navigation_the_page_that_it_lies_below(fleet: dict[str, object], admin: Client) -> None:
    entries = {reverse(entry.view) for _label, group in GROUPS for entry in group}
    wrong = {}
    for name, (path, _needed) in PAGES.items():
        page = admin.get(path.format(**fleet)).content.decode()
        above = re.search(r'<p class="crumb"><a href="([^"]*)"', page)
        marked = re.findall(r'<a href="([^"]*)" aria-current="page">', page)
        if above is not None and above[1] in entries and marked != [above[1]]:
            wrong[name] = (above[1], marked)
    assert wrong == {}


def test_a_review_calls_no_value_as_only_the_rest_api_does(fleet: dict[str, object], admin: Client) -> None:
    raw = {}
    for name, (path, _needed) in PAGES.items():
        page = admin.get(path.format(**fleet)).content.decode()
        labels = re.findall(r'<td class="place title words">([^<]*)', page)
        if found := {label for label in labels if re.fullmatch("[a-z0-9_]+", label)} - WORDS_OF_PROMETHEUS:
            raw[name] = found
    assert raw == {}


def test_the_page_that_a_write_leads_to_shows_how_far_its_change_has_come(
    fleet: dict[str, object], admin: Client
) -> None:
    for name in AFTER_A_WRITE:
        path = PAGES[name][0].format(**fleet)
        page = admin.get(f"{path}?change={fleet['change']}").content.decode()
        assert f"/convergence/?change={fleet['change']}" in page, path
        assert admin.get(f"{path}?change=none").status_code == 404, path


@pytest.mark.parametrize("name", ["400.html", "web/failed.html"])
def test_the_page_of_a_failure_needs_nothing_but_itself(name: str) -> None:
    page = render_to_string(name)
    assert "<h1>" in page
    assert "/static/web/site.css" in page


def _fits(template: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", template), path) is not None


def _curl_lines(page: str) -> Iterator[tuple[str, str]]:
    for line in re.findall(r'<pre id="curl-[a-z0-9-]+">(.*?)</pre>', page, re.DOTALL):
        method = re.search(r"-X ([A-Z]+)", line)
        path = re.search(r"http://testserver(/[^?\s&#]*)", line)
        assert path, line
        yield (method[1] if method else "GET"), path[1]
