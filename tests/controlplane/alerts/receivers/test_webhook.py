"""The message's form, against what a real Alertmanager sends, and its signature, by the verifier of the manual."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from controlplane.alerts.receivers.message import Alert, common
from controlplane.alerts.receivers.webhook import document, group_key, signature
from tests.controlplane.alerts.receivers.made import ENDED, NOW, STARTED, URL, alert, message, requests, target
from tests.controlplane.alerts.receiving import on_call
from tests.services import Process, free_port, service_binary, wait_for

MANUAL = Path(__file__).parents[4] / "docs" / "receivers.md"
LABELS = {"alertname": "XidCritical", "node": 'n"1', "severity": "critical"}
ANNOTATIONS = {"summary": "XID 79 on GPU 3"}


def ours(*ended_at: datetime | None) -> dict[str, Any]:
    alerts = [
        Alert(LABELS, ANNOTATIONS, "ab" * 32, STARTED, each, "https://hw.example/incidents/7") for each in ended_at
    ]
    return document(message("first" if None in ended_at else "resolved", *alerts))


def form(value: Any) -> Any:
    """Names and types alone; a list is that of its first item, a map of texts is one."""
    if isinstance(value, dict):
        return {name: form(item) for name, item in value.items()}
    if isinstance(value, list):
        return [form(value[0])]
    return type(value).__name__


def sent_by_alertmanager(folder: Path) -> list[dict[str, Any]]:
    """What the real one posts to a webhook when an alert fires, and when it ends."""
    binary, port = service_binary("alertmanager"), free_port()
    with on_call() as receiver:
        settings = folder / "alertmanager.yml"
        settings.write_text(
            f"""
route: {{receiver: oncall, group_by: ['...'], group_wait: 0s, group_interval: 1s}}
receivers: [{{name: oncall, webhook_configs: [{{url: '{receiver.url}', send_resolved: true}}]}}]
"""
        )
        argv: list[str | Path] = [
            binary, f"--config.file={settings}", f"--storage.path={folder}", "--cluster.listen-address=",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        with Process(argv, log=folder / "log") as process:
            process.wait_for_http(f"http://127.0.0.1:{port}/-/ready")

            def say(**more: str) -> None:
                fired = {"labels": LABELS, "annotations": ANNOTATIONS, "startsAt": "2026-03-01T12:00:01.5Z", **more}
                request = urllib.request.Request(
                    f"http://127.0.0.1:{port}/api/v2/alerts",
                    json.dumps([fired]).encode(),
                    {"Content-Type": "application/json"},
                )
                urllib.request.urlopen(request, timeout=5).close()

            say(generatorURL=URL)
            wait_for(lambda: len(receiver.got) >= 1, 20, "the firing message")
            say(endsAt=datetime.now(UTC).isoformat())
            wait_for(lambda: len(receiver.got) >= 2, 20, "the resolved message")
        return [got.document for got in receiver.got[:2]]


def test_the_message_has_the_form_of_a_real_alertmanagers(tmp_path):
    firing, resolved = sent_by_alertmanager(tmp_path)
    ours_firing, ours_resolved = ours(None), ours(STARTED)
    assert form(ours_firing) == form(firing)
    assert form(ours_resolved) == form(resolved)
    # What does not depend on who sent it is the same to the letter.
    for name in ("version", "status", "receiver", "truncatedAlerts", "groupLabels", "commonLabels", "groupKey"):
        assert ours_firing[name] == firing[name]
    assert ours_firing["alerts"][0]["endsAt"] == firing["alerts"][0]["endsAt"]
    assert ours_resolved["status"] == resolved["status"] == ours_resolved["alerts"][0]["status"]


def test_an_incident_that_ended_says_when():
    assert ours(ENDED)["alerts"][0]["endsAt"] == "2026-03-01T13:00:00.000Z"


def test_a_group_says_what_its_alerts_have_in_common_and_how_many_are_left_out():
    alerts = [alert(labels={**LABELS, "gpu": str(number)}, summary=f"GPU {number}") for number in range(3)]
    body = document(message("changed", *alerts, alerts_more=4, group_labels={"node": "n1"}, route="hardware"))
    assert [each["labels"]["gpu"] for each in body["alerts"]] == ["0", "1", "2"]
    assert body["truncatedAlerts"] == 4
    assert body["commonLabels"] == LABELS
    assert set(body["commonAnnotations"]) == {"description", "runbook_url"}
    assert body["groupLabels"] == {"node": "n1"}
    assert body["groupKey"] == '{}/{route="hardware"}:{node="n1"}'


def test_a_group_key_holds_any_value():
    assert group_key("", {"b": 'say "x"', "a": "1"}) == '{}:{a="1", b="say \\"x\\""}'


def test_it_is_signed_over_the_very_bytes_that_are_sent():
    (request,) = requests("webhook", message(), target("webhook", "https://a.example/", "hws-secret"))
    stamp = int(NOW.timestamp())
    assert request.headers["X-Headworks-Signature"] == signature("hws-secret", request.body, stamp)
    assert request.headers["X-Headworks-Delivery"] == "d-1"
    assert json.loads(request.body) == document(message())
    assert common([]) == {}


@pytest.fixture(scope="module")
def verify():
    """The verifier that the manual gives to those who receive."""
    code = re.search(r"```python\n(.*?def verify.*?)```", MANUAL.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    space: dict[str, Any] = {}
    exec(code.group(1), space)
    return space["verify"]


@pytest.mark.parametrize(
    ("changed", "genuine"),
    [
        ({}, True),
        ({"body": b'{"a":2}'}, False),
        ({"secret": "hws-other"}, False),
        ({"late_seconds": 299}, True),
        ({"late_seconds": 301}, False),
        ({"late_seconds": -301}, False),
        ({"header": ""}, False),
        ({"header": "t=soon,v1=ab"}, False),
        ({"header": "v1=ab"}, False),
    ],
)
def test_the_manuals_verifier_takes_what_is_genuine_and_nothing_else(verify, changed, genuine):
    body, now = b'{"a":1}', int(time.time())
    header = changed.get("header", signature("hws-secret", body, now - changed.get("late_seconds", 0)))
    assert verify(changed.get("secret", "hws-secret"), header, changed.get("body", body)) is genuine
