from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import Fernet

from controlplane.alerts.models import Receiver
from controlplane.alerts.receivers_api import router
from controlplane.alerts.services.receivers import secret_of
from controlplane.alerts.services.standing import routes_to_nobody
from controlplane.core.models import AuditEntry, Role
from controlplane.core.sealed import unseal
from tests.controlplane.alerts.incident import URL
from tests.controlplane.alerts.receiving import ALLOWED, Answer, on_call
from tests.controlplane.core.access import Call, check_access, routes_of

CALLS = [
    Call("GET", "/receivers", Role.VIEWER),
    Call("POST", "/receivers", Role.ADMIN),
    Call("GET", "/receivers/{name}", Role.VIEWER),
    Call("PATCH", "/receivers/{name}", Role.ADMIN),
    Call("DELETE", "/receivers/{name}", Role.ADMIN),
    Call("POST", "/receivers/{name}/rotate-secret", Role.ADMIN),
    Call("POST", "/receivers/{name}/test", Role.ADMIN),
    Call("GET", "/receivers/{name}/state", Role.VIEWER),
    Call("POST", "/receivers/{name}/resend-failed", Role.OPERATOR),
    Call("GET", "/deliveries", Role.VIEWER),
    Call("GET", "/deliveries/{delivery_id}", Role.VIEWER),
    Call("GET", "/deliveries/{delivery_id}/attempts", Role.VIEWER),
    Call("POST", "/deliveries/{delivery_id}/resend", Role.OPERATOR),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    assert {call[:2] for call in CALLS} == routes_of(router)


def test_the_secret_is_shown_once_and_stored_sealed(admin, viewer):
    answer = admin.post("/receivers", {"name": "oncall", "url": URL}).json()
    secret = answer["secret"]
    assert secret.startswith("hws-")
    row = Receiver.objects.get()
    assert secret_of(row) == secret
    assert secret not in row.sealed_secret
    shown = viewer.get("/receivers/oncall").content + viewer.get("/receivers").content + viewer.get("/audit").content
    assert secret.encode() not in shown
    assert row.sealed_secret.encode() not in shown
    assert viewer.get("/receivers/oncall").json() == {
        "name": "oncall",
        "kind": "webhook",
        "url": URL,
        "settings": {},
        "min_severity": "warning",
        "send_resolved": True,
        "enabled": True,
        "rate_limit_per_minute": 0,
        "secret_made_at": answer["item"]["secret_made_at"],
    }


def test_a_change_keeps_the_secret_and_a_rotation_makes_another(admin):
    first = admin.post("/receivers", {"name": "oncall", "url": URL}).json()["secret"]
    assert admin.patch("/receivers/oncall", {"enabled": False}).json()["item"]["enabled"] is False
    assert secret_of(Receiver.objects.get()) == first
    second = admin.post("/receivers/oncall/rotate-secret").json()["secret"]
    assert second != first
    assert secret_of(Receiver.objects.get()) == second
    assert AuditEntry.objects.filter(noun="receiver", action="update").count() == 2


def test_a_dry_run_keeps_nothing_and_shows_no_secret(admin):
    answer = admin.post("/receivers?dry_run=true", {"name": "oncall", "url": URL}).json()
    assert answer["secret"] is None
    assert not Receiver.objects.exists()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"url": "https://user:pass@example.com/"}, "/url"),
        ({"url": "http://127.0.0.1/"}, "/url"),
        ({"url": "http://169.254.169.254/latest"}, "/url"),
        ({"url": 7}, "/url"),
        ({}, "/url"),
        ({"url": URL, "min_severity": "loud"}, "/min_severity"),
        ({"url": URL, "sealed_secret": "x"}, "/sealed_secret"),
        ({"url": URL, "name": "On Call"}, "/name"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_stands(admin, fields, path):
    answer = admin.post("/receivers", {"name": "oncall", **fields})
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["problems"]] == [path]
    assert not Receiver.objects.exists()


def test_a_private_address_may_be_set_once_its_network_is_allowed(admin, monkeypatch):
    body = {"name": "oncall", "url": "http://10.1.2.3/"}
    assert admin.post("/receivers", body).status_code == 422
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", "10.1.0.0/16")
    assert admin.post("/receivers", body).status_code == 201


def test_a_test_message_says_what_it_is_and_how_it_ended(admin, monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)
    with on_call(Answer(), Answer(500, body=b"no room")) as receiver:
        admin.post("/receivers", {"name": "oncall", "url": receiver.url})
        taken = admin.post("/receivers/oncall/test").json()
        refused = admin.post("/receivers/oncall/test").json()
    assert taken == {"delivered": True, "reason": "taken", "error": None, "status": 200, "said": ""}
    assert (refused["delivered"], refused["reason"]) == (False, "server_error")
    assert (refused["status"], refused["said"]) == (500, "no room")
    assert receiver.got[0].document["alerts"][0]["labels"]["alertname"] == "HeadworksTest"
    assert admin.post("/receivers/nobody/test").status_code == 404


FLOW = "https://flows.example/invoke?api-version=1&sig=secret-signature"
KINDS = [
    ("pagerduty", {"secret": "R" * 32}, {"url": "https://events.pagerduty.com", "settings": {}}),
    ("slack", {"secret": FLOW}, {"url": "", "settings": {}}),
    ("teams", {"secret": FLOW}, {"url": "", "settings": {}}),
    ("opsgenie", {"secret": "key-12345678", "settings": {"teams": ["a"]}}, {"settings": {"teams": ["a"]}}),
    ("email", {"settings": {"to": ["b@x.org", "a@x.org"]}}, {"settings": {"to": ["a@x.org", "b@x.org"]}}),
    ("apprise", {"secret": "json://hooks.example/secret-token"}, {"url": ""}),
    (
        "alertmanager",
        {"settings": {"urls": ["http://am.example:9093"]}},
        {"settings": {"urls": ["http://am.example:9093"], "user": "", "resend_seconds": 60}},
    ),
    ("heartbeat", {"secret": FLOW}, {"settings": {"method": "POST", "interval_seconds": 60}}),
]


@pytest.mark.parametrize(("kind", "given", "shown"), KINDS, ids=[kind for kind, *_ in KINDS])
def test_each_kind_is_made_with_its_fields_and_its_secret_is_shown_nowhere(admin, viewer, kind, given, shown):
    answer = admin.post("/receivers", {"name": "a", "kind": kind, **given})
    assert answer.status_code == 201, answer.content
    assert answer.json()["secret"] is None
    assert answer.json()["item"] | shown == answer.json()["item"]
    secret = given.get("secret")
    everything = [viewer.get(path).content for path in ("/receivers", "/receivers/a", "/receivers/a/state", "/audit")]
    if secret:
        assert secret.encode() not in b"".join([answer.content, *everything])
        assert unseal(Receiver.objects.get().sealed_secret) == secret
    else:
        assert Receiver.objects.get().sealed_secret == ""


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"kind": "carrier-pigeon", "url": URL}, "/kind"),
        ({"kind": "slack", "url": URL, "secret": FLOW}, "/url"),
        ({"kind": "slack"}, "/secret"),
        ({"kind": "slack", "secret": "http://169.254.169.254/"}, "/secret"),
        ({"kind": "slack", "secret": FLOW, "settings": {"channel": "x"}}, "/settings/channel"),
        ({"kind": "pagerduty", "secret": "short"}, "/secret"),
        ({"kind": "pagerduty", "secret": "R" * 32, "url": "http://10.0.0.1/"}, "/url"),
        ({"kind": "opsgenie", "secret": "key-12345678", "settings": {"teams": "a"}}, "/settings/teams"),
        ({"kind": "email"}, "/settings/to"),
        ({"kind": "email", "settings": {"to": ["nobody"]}}, "/settings/to/0"),
        ({"kind": "email", "settings": {"to": ["a@x.org"]}, "secret": "x"}, "/secret"),
        ({"kind": "apprise", "secret": "syslog://"}, "/secret"),
        ({"kind": "alertmanager", "settings": {"urls": ["http://a"], "user": "hw"}}, "/secret"),
        ({"kind": "heartbeat", "secret": FLOW, "settings": {"interval_seconds": 1}}, "/settings/interval_seconds"),
        ({"kind": "webhook", "url": URL, "secret": "mine"}, "/secret"),
        ({"kind": "webhook"}, "/url"),
        ({"url": URL, "rate_limit_per_minute": -1}, "/rate_limit_per_minute"),
    ],
)
def test_what_does_not_fit_its_kind_is_refused_where_it_stands(admin, fields, path):
    answer = admin.post("/receivers", {"name": "a", **fields})
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["problems"]] == [path]
    assert not Receiver.objects.exists()


def test_a_given_secret_stays_until_another_is_given_and_goes_where_it_may(admin):
    admin.post(
        "/receivers",
        {"name": "a", "kind": "alertmanager", "settings": {"urls": ["http://am.example"]}, "secret": "token-1"},
    )
    assert admin.patch("/receivers/a", {"min_severity": "info"}).status_code == 200
    assert unseal(Receiver.objects.get().sealed_secret) == "token-1"
    admin.patch("/receivers/a", {"secret": "token-2"})
    assert unseal(Receiver.objects.get().sealed_secret) == "token-2"
    assert admin.patch("/receivers/a", {"secret": None}).json()["item"]["secret_made_at"] is None
    admin.post("/receivers", {"name": "b", "kind": "slack", "secret": FLOW})
    assert admin.patch("/receivers/b", {"secret": None}).json()["problems"][0]["path"] == "/secret"


def test_a_kind_stays_and_only_a_secret_that_was_made_here_is_rotated(admin):
    admin.post("/receivers", {"name": "a", "kind": "slack", "secret": FLOW})
    assert admin.patch("/receivers/a", {"kind": "teams"}).json()["problems"][0]["rule"] == "fixed"
    assert admin.post("/receivers/a/rotate-secret").json()["code"] == "not_made_here"


@pytest.mark.parametrize("kind", ["slack", "teams", "heartbeat"])
def test_a_service_that_answers_with_what_it_was_sent_gives_no_secret_away(admin, monkeypatch, kind):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)
    with on_call(Answer(404, echo=True)) as receiver:
        url = f"{receiver.url}/very-secret-path?sig=very-secret-signature"
        admin.post("/receivers", {"name": "a", "kind": kind, "secret": url})
        answer = admin.post("/receivers/a/test").json()
    assert (answer["reason"], answer["status"]) == ("rejected", 404)
    assert answer["said"]
    assert "very-secret" not in str(answer)
    assert receiver.got[0].path == "/hook/very-secret-path?sig=very-secret-signature"


def test_an_echoed_key_of_a_header_or_a_body_is_hidden(admin, monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)
    with on_call(Answer(401, echo=True), Answer(401, echo=True), Answer(401, echo=True)) as receiver:
        base = receiver.url.removesuffix("/hook")
        admin.post("/receivers", {"name": "p", "kind": "pagerduty", "url": base, "secret": "K" * 32})
        admin.post("/receivers", {"name": "o", "kind": "opsgenie", "url": base, "secret": "key-12345678"})
        settings = {"urls": [base], "user": "hw"}
        admin.post("/receivers", {"name": "m", "kind": "alertmanager", "settings": settings, "secret": "password-1"})
        answers = str([admin.post(f"/receivers/{name}/test").json() for name in "pom"])
    assert len(receiver.got) == 3
    for secret in ("K" * 32, "key-12345678", "password-1", "aHc6cGFzc3dvcmQtMQ=="):
        assert secret not in answers
    assert "[hidden]" in answers


@pytest.mark.parametrize("kind", ["webhook", "slack"])
def test_a_secret_that_another_key_sealed_is_named_and_nothing_is_sent(admin, settings, monkeypatch, kind):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)
    with on_call() as receiver:
        where = {"url": receiver.url} if kind == "webhook" else {"secret": receiver.url}
        admin.post("/receivers", {"name": "a", "kind": kind, **where})
        settings.HEADWORKS_FIELD_KEY = Fernet.generate_key().decode()
        answer = admin.post("/receivers/a/test").json()
    assert answer["reason"] == "secret_unreadable"
    assert not receiver.got


def test_a_route_that_leads_to_nobody_that_is_on_says_so(admin):
    for name in ("a", "b"):
        admin.post("/receivers", {"name": name, "url": URL})
    admin.post("/alert-routes", {"name": "r", "receivers": ["a", "b"]})

    def warned(answer: Any) -> list[str]:
        return [each["message"] for each in answer.json()["warnings"]]

    assert warned(admin.patch("/receivers/a", {"enabled": False})) == []
    assert warned(admin.patch("/receivers/b", {"enabled": False})) == ["nobody is told any more of what goes by r"]
    says = "none of these takes messages now: nobody is told of what matches"
    assert warned(admin.patch("/alert-routes/r", {"order": 3})) == [says]
    assert warned(admin.post("/alert-routes", {"name": "s", "receivers": ["a"]})) == [says]
    # Nobody is meant.
    assert warned(admin.post("/alert-routes", {"name": "t", "receivers": []})) == []
    assert warned(admin.delete("/alert-routes/s")) == []
    admin.patch("/receivers/a", {"enabled": True})
    assert warned(admin.patch("/alert-routes/r", {"order": 4})) == []


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_route_of_a_receiver_that_is_off_and_one_that_hears_nothing_leads_to_nobody(admin, is_gone):
    other = {"name": "other", "url": URL} if is_gone else {"name": "other", "kind": "heartbeat", "secret": URL}
    for body in ({"name": "a", "url": URL}, other):
        assert admin.post("/receivers", body).status_code == 201
    admin.post("/alert-routes", {"name": "r", "receivers": ["a", "other"]})
    if is_gone:
        Receiver.objects.get(name="other").delete()
    (warning,) = admin.patch("/receivers/a", {"enabled": False}).json()["warnings"]
    assert warning["message"] == "nobody is told any more of what goes by r"
    # Of one whose receivers are all gone everyone is told.
    Receiver.objects.all().delete()
    assert routes_to_nobody() == {}


def test_a_state_says_what_became_of_what_was_sent(admin, viewer):
    admin.post("/receivers", {"name": "a", "url": URL})
    assert viewer.get("/receivers/a/state").json() == {
        "breaker": "closed",
        "failures_in_a_row": 0,
        "open_until": None,
        "waiting": 0,
        "failed": 0,
        "last_taken_at": None,
        "last_error": None,
        "due_at": None,
    }
    assert viewer.get("/receivers/nobody/state").status_code == 404
