from __future__ import annotations

import json

import pytest

from controlplane.alerts.delivery_plan import Reason
from controlplane.alerts.receivers.contract import Answer
from controlplane.alerts.receivers.pagerduty import PagerDuty
from tests.controlplane.alerts.receivers.made import NOW, URL, alert, message, requests, target

KEY = "R" * 32


def event(occasion: str = "first", *alerts, **changes):
    (request,) = requests("pagerduty", message(occasion, *alerts, **changes), target("pagerduty", secret=KEY))
    assert request.url == "https://events.pagerduty.com/v2/enqueue"
    return json.loads(request.body)


@pytest.mark.parametrize(
    ("occasion", "action"),
    [
        ("first", "trigger"),
        ("changed", "trigger"),
        ("repeat", "trigger"),
        ("acknowledged", "acknowledge"),
        ("resolved", "resolve"),
    ],
)
def test_each_occasion_is_an_action_on_one_alert(occasion, action):
    sent = event(occasion)
    assert (sent["event_action"], sent["dedup_key"], sent["routing_key"]) == (action, "headworks-0123", KEY)
    assert ("payload" in sent) == (action == "trigger")


def test_a_trigger_says_what_where_and_how_grave():
    sent = event()
    assert sent["payload"] | {"custom_details": None} == {
        "summary": "XID 79 on GPU 3",
        "source": "n1",
        "severity": "critical",
        "timestamp": "2026-03-01T12:00:01.500Z",
        "component": "chat",
        "group": "chat",
        "class": "GpuXid",
        "custom_details": None,
    }
    assert sent["links"] == [{"href": "https://hw.example/r", "text": "Runbook"}]
    assert sent["client_url"] == URL


def test_a_storm_stays_within_what_an_event_may_be():
    alerts = [alert(summary="x" * 5000) for _ in range(50)]
    sent = event("changed", *alerts, title="x" * 5000, alerts_more=4950)
    assert len(sent["payload"]["summary"]) == 1024
    assert sent["payload"]["custom_details"]["alerts_more"] == 4980
    assert len(json.dumps(sent)) < 512_000


@pytest.mark.parametrize("text", ["x", "\N{FIRE}"])
def test_labels_without_end_stay_within_it_too(text):
    labels = {f"label_{number}": text * 2000 for number in range(60)}
    (request,) = requests(
        "pagerduty",
        message("changed", *[alert(labels=labels) for _ in range(50)], title=text * 200),
        target("pagerduty", secret=KEY),
    )
    assert len(request.body) <= 512_000
    details = json.loads(request.body)["payload"]["custom_details"]
    assert len(details["alerts"]) + details["alerts_more"] == 50


def test_an_account_in_the_eu_has_its_own_region():
    where = target("pagerduty", "https://events.eu.pagerduty.com/", KEY)
    assert requests("pagerduty", message(), where)[0].url == "https://events.eu.pagerduty.com/v2/enqueue"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (202, "", Reason.TAKEN),
        (400, '{"errors": ["Length of severity"]}', Reason.INVALID),
        (400, '{"errors": ["Invalid routing key"]}', Reason.REJECTED),
        (403, "", Reason.REJECTED),
        (429, "", Reason.BUSY),
        (500, "", Reason.SERVER_ERROR),
    ],
)
def test_its_answers_say_whether_to_try_again(status, body, reason):
    assert PagerDuty().judge(Answer(status, None, body), NOW).reason is reason


@pytest.mark.parametrize("key", ["R" * 31, "R" * 33, "R" * 31 + "-", ""])
def test_what_is_no_integration_key_is_refused(key):
    assert "32 letters" in (PagerDuty().secret_problem(key, ()) or "")
    assert PagerDuty().secret_problem(KEY, ()) is None
