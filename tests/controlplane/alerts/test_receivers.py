from __future__ import annotations

import pytest

from controlplane.alerts.models import Receiver
from controlplane.alerts.receivers_api import router
from controlplane.alerts.services.receivers import secret_of
from controlplane.core.models import AuditEntry, Role
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
    Call("GET", "/deliveries", Role.VIEWER),
    Call("GET", "/deliveries/{delivery_id}", Role.VIEWER),
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
        "url": URL,
        "min_severity": "warning",
        "send_resolved": True,
        "enabled": True,
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
    with on_call(Answer(), Answer(500)) as receiver:
        admin.post("/receivers", {"name": "oncall", "url": receiver.url})
        taken = admin.post("/receivers/oncall/test").json()
        refused = admin.post("/receivers/oncall/test").json()
    assert taken == {"delivered": True, "reason": "taken", "error": None}
    assert (refused["delivered"], refused["reason"]) == (False, "server_error")
    assert "500" in refused["error"]
    assert receiver.got[0].document["alerts"][0]["labels"]["alertname"] == "HeadworksTest"
    assert admin.post("/receivers/nobody/test").status_code == 404
