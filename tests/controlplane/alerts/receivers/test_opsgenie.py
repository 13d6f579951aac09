from __future__ import annotations

import json

from controlplane.alerts.delivery_plan import Reason
from controlplane.alerts.receivers.contract import Answer
from controlplane.alerts.receivers.opsgenie import Opsgenie
from tests.controlplane.alerts.receivers.made import NOW, alert, message, requests, target

WHERE = target("opsgenie", secret="key-12345678", teams=["fleet"])
ALIAS = "https://api.opsgenie.com/v2/alerts/headworks-0123"


def sent(occasion: str, *alerts, **changes):
    (request,) = requests("opsgenie", message(occasion, *alerts, **changes), WHERE)
    assert request.headers["Authorization"] == "GenieKey key-12345678"
    return request.url, json.loads(request.body)


def test_the_beginning_creates_an_alert_of_the_incidents_alias():
    url, body = sent("first")
    assert url == "https://api.opsgenie.com/v2/alerts"
    assert (body["alias"], body["priority"], body["entity"]) == ("headworks-0123", "P1", "n1")
    assert body["responders"] == [{"type": "team", "name": "fleet"}]
    assert body["tags"] == ["GpuXid", "critical"]
    assert body["details"]["runbook_url"] == "https://hw.example/r"


def test_seen_and_over_go_to_the_same_alias():
    url, body = sent("acknowledged", acknowledged_by="ada")
    assert (url, body["user"]) == (f"{ALIAS}/acknowledge?identifierType=alias", "ada")
    url, body = sent("resolved")
    assert url == f"{ALIAS}/close?identifierType=alias"
    assert body["note"] == "[RESOLVED] XID 79 on GPU 3"


def test_fields_are_cut_to_what_it_takes():
    _, body = sent("first", *[alert(summary="x" * 1000) for _ in range(50)], title="x" * 300, alerts_more=7)
    assert len(body["message"]) == 130
    assert len(body["description"]) <= 15_000


def test_details_are_cut_to_what_it_takes_of_all_of_them():
    labels = {"alertname": "a" * 300, "node": "n" * 900, **{f"label_{number}": "x" * 900 for number in range(30)}}
    _, body = sent("first", alert(labels=labels))
    assert sum(len(name) + len(value) for name, value in body["details"].items()) <= 8_000
    assert len(body["details"]) > 5
    assert max(map(len, body["tags"])) <= 50
    assert len(body["entity"]) <= 512
    _, body = sent("acknowledged", acknowledged_by="a" * 150)
    assert len(body["user"]) <= 100


def test_an_account_in_the_eu_has_its_own_url():
    where = target("opsgenie", "https://api.eu.opsgenie.com", "key-12345678")
    assert requests("opsgenie", message(), where)[0].url == "https://api.eu.opsgenie.com/v2/alerts"


def test_an_alert_that_it_cannot_read_is_not_sent_again():
    assert Opsgenie().judge(Answer(422, None, ""), NOW).reason is Reason.INVALID
    assert Opsgenie().judge(Answer(401, None, ""), NOW).reason is Reason.REJECTED
