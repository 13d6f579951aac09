"""The same alerts, routes, inhibitions and silences given to a real Alertmanager: who was told of what is the same."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from controlplane.alerts.models import Alert, Delivery, LastTold
from controlplane.alerts.services import alerts, notifying
from controlplane.alerts.services.alert_routes import ALERT_ROUTES
from controlplane.alerts.services.alerts import NewAlert
from controlplane.alerts.services.incidents import fingerprint
from controlplane.alerts.services.inhibitions import INHIBITIONS
from controlplane.alerts.services.silences import SILENCES
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.fields import iso
from controlplane.core.yaml_text import write_yaml
from tests.controlplane.alerts.incident import receiver
from tests.controlplane.alerts.receiving import OnCall, on_call
from tests.services import Process, free_port, service_binary, wait_for

pytestmark = pytest.mark.django_db
GROUP_WAIT_MS, GROUP_INTERVAL_MS, REPEAT_INTERVAL_MS = 200, 1000, 3000
RECEIVERS = ("hardware", "chat", "oncall")
ROUTES: dict[str, dict[str, Any]] = {
    "hardware": {"matchers": ['alertname=~"Gpu.*|NodeLost"'], "group_by": ["node"]},
    "chat": {"matchers": ['pool=~"chat-.*"', 'severity!="info"'], "group_by": ["alertname", "pool"]},
    # Without the label that it is grouped by, too; and each by itself.
    "oncall": {"matchers": [], "group_by": ["..."]},
}
INHIBITION = {
    "source_matchers": ['alertname="NodeLost"'],
    "target_matchers": ['alertname!="NodeLost"', 'node!=""'],
    "equal": ["node"],
}
SILENCED = ['pool="chat-b"', 'alertname=~"Kv.*"']
Labels = dict[str, str]


def labels(alertname: str, severity: str = "warning", **more: str) -> Labels:
    return {"alertname": alertname, "severity": severity, **more}


XIDS = [labels("GpuXid", "critical", node="n1", gpu=gpu) for gpu in ("g1", "g2")]
LOST = labels("NodeLost", "critical", node="n2")
ON_LOST = labels("GpuLost", "critical", node="n2", gpu="g1")
ENGINE_ON_LOST = labels("EngineDown", "critical", node="n2", engine="e9")
FULL = [labels("KvFull", pool="chat-a", engine=engine) for engine in ("e1", "e2", "e3")]
MUTE = labels("KvFull", pool="chat-b", engine="e4")
MILD = labels("KvFull", "info", pool="chat-a", engine="e5")
DISK = labels("DiskFull", path="/var")
# One after the other: what fires, and what has ended.
STEPS: list[tuple[Sequence[Labels], Sequence[Labels]]] = [
    ([*XIDS[:1], LOST, ON_LOST, ENGINE_ON_LOST, *FULL[:2], MUTE, MILD, DISK], []),
    ([XIDS[1], FULL[2]], []),
    ([], [FULL[0], DISK]),
    ([], [LOST, MUTE]),
    ([], [*XIDS, *FULL[1:], ON_LOST, ENGINE_ON_LOST, MILD]),
]


@dataclass(frozen=True)
class Said:
    """One message: to whom, about which group, and which of its alerts fire."""

    receiver: str
    group: frozenset[tuple[str, str]]
    firing: frozenset[frozenset[tuple[str, str]]]


def said(receiver_name: str, group: Labels, firing: Sequence[Labels]) -> Said:
    return Said(receiver_name, frozenset(group.items()), frozenset(frozenset(each.items()) for each in firing))


# Ours


def lay_down() -> None:
    waits = {
        "group_wait_ms": GROUP_WAIT_MS,
        "group_interval_ms": GROUP_INTERVAL_MS,
        "repeat_interval_ms": REPEAT_INTERVAL_MS,
    }
    for name in RECEIVERS:
        receiver(name, min_severity="info")
    with unit_of_work(SYSTEM, "a test") as unit:
        for order, (name, route) in enumerate(ROUTES.items()):
            ALERT_ROUTES.create(unit, name, {**route, **waits, "order": order, "receivers": [name]})
        INHIBITIONS.create(unit, "node-lost", INHIBITION)
        ends_at = iso(timezone.now() + timedelta(hours=1))
        SILENCES.create(unit, "kv", {"matchers": SILENCED, "ends_at": ends_at, "comment": "known"})


def step(fires: Sequence[Labels], ended: Sequence[Labels], at: datetime) -> None:
    with transaction.atomic():
        alerts.open_alerts(
            [NewAlert(each, "rule", each["severity"], each["alertname"], {}, at, "it is so") for each in fires]
        )
        over = alerts.firing_of(fingerprint(each) for each in ended)
        assert alerts.resolve_alerts([each.pk for each in over.values()], at, "over") == len(ended)


def look(later: timedelta, known: set[Any]) -> set[Said]:
    """What the worker says when it looks so much later."""
    moment = timezone.now() + later
    notifying.look_at_due(lambda: moment)
    found = set()
    for row in Delivery.objects.exclude(pk__in=known).select_related("incident", "receiver"):
        known.add(row.pk)
        told = LastTold.objects.get(incident=row.incident, receiver=row.receiver).alerts
        firing = list(Alert.objects.filter(pk__in=told).values_list("labels", flat=True))
        found.add(said(row.receiver.name, row.incident.labels, firing))
    return found


# The real one's


class Real:
    def __init__(self, url: str, heard: OnCall) -> None:
        self._url, self._heard = url, heard

    def post(self, path: str, document: object) -> None:
        body, headers = json.dumps(document).encode(), {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{self._url}/api/v2/{path}", body, headers), timeout=5).close()

    def step(self, fires: Sequence[Labels], ended: Sequence[Labels]) -> None:
        now = iso(timezone.now())
        firing = [{"labels": each, "startsAt": now} for each in fires]
        self.post("alerts", [*firing, *({"labels": each, "endsAt": now} for each in ended)])

    def has_said(self, wanted: frozenset[Said]) -> bool:
        return wanted <= set(self.said())

    def said(self) -> list[Said]:
        """In order, repeats among it."""
        return [
            said(
                body["receiver"],
                body["groupLabels"],
                [each["labels"] for each in body["alerts"] if each["status"] == "firing"],
            )
            for body in (got.document for got in list(self._heard.got))
        ]


@contextmanager
def real_one(folder: Path) -> Iterator[Real]:
    binary, port = service_binary("alertmanager"), free_port()
    with on_call() as heard:
        hook = [{"url": heard.url, "send_resolved": True}]
        document = {
            "route": {
                "receiver": "oncall",
                "group_wait": f"{GROUP_WAIT_MS}ms",
                "group_interval": f"{GROUP_INTERVAL_MS}ms",
                "repeat_interval": f"{REPEAT_INTERVAL_MS}ms",
                "routes": [{**route, "receiver": name} for name, route in ROUTES.items()],
            },
            "receivers": [{"name": name, "webhook_configs": hook} for name in RECEIVERS],
            "inhibit_rules": [INHIBITION],
        }
        settings = folder / "alertmanager.yml"
        settings.write_text(write_yaml(document))
        argv: list[str | Path] = [
            binary, f"--config.file={settings}", f"--storage.path={folder}", "--cluster.listen-address=",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        with Process(argv, log=folder / "log") as process:
            url = f"http://127.0.0.1:{port}"
            process.wait_for_http(f"{url}/-/ready")
            real = Real(url, heard)
            end = iso(timezone.now() + timedelta(hours=1))
            parts = [("pool", "chat-b", False), ("alertname", "Kv.*", True)]
            matchers = [{"name": name, "value": value, "isRegex": regex} for name, value, regex in parts]
            silence = {"matchers": matchers, "startsAt": iso(timezone.now()), "endsAt": end}
            real.post("silences", {**silence, "createdBy": "a test", "comment": "known"})
            yield real


def test_who_is_told_of_what_is_what_a_real_one_says(tmp_path: Path) -> None:
    lay_down()
    known: set[Any] = set()
    ours: set[Said] = set()
    with real_one(tmp_path) as real:
        for fires, ended in STEPS:
            step(fires, ended, timezone.now())
            new = look(timedelta(milliseconds=GROUP_INTERVAL_MS), known)
            ours |= new
            real.step(fires, ended)
            wait_for(partial(real.has_said, frozenset(ours)), 20, f"what we say of {fires or ended}: {new}")
        assert set(real.said()) == ours
    assert {each.receiver for each in ours} == set(RECEIVERS)


def test_both_repeat_what_still_fires_after_the_repeat_interval_and_not_before(tmp_path: Path) -> None:
    lay_down()
    known: set[Any] = set()
    step([DISK], [], timezone.now())
    first = look(timedelta(milliseconds=GROUP_WAIT_MS), known)
    assert look(timedelta(milliseconds=REPEAT_INTERVAL_MS - 500), known) == set()
    assert look(timedelta(milliseconds=REPEAT_INTERVAL_MS + 500), known) == first
    with real_one(tmp_path) as real:
        began = time.monotonic()
        real.step([DISK], [])
        wait_for(lambda: len(real.said()) >= 2, 20, "the repeat")
        assert time.monotonic() - began >= REPEAT_INTERVAL_MS / 1000
        assert set(real.said()) == first
