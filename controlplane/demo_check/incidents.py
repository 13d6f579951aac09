"""Faults that a check throws, the incidents that they become, and what on-call is told of them."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from controlplane.demo.fleet import Fleet, python_module
from controlplane.demo_check.steps import expect, wait_until

# Alertmanager's webhook body, version 4: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
_BODY_FIELDS = {
    "version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels", "commonAnnotations",
    "externalURL", "alerts",
}  # fmt: skip
_ALERT_FIELDS = {"status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint"}


@dataclass(frozen=True)
class Fault:
    """One XID on one simulated GPU. `at`: the moment before anyone could see it."""

    node: str
    gpu: int
    uuid: str
    xid: int
    at: datetime

    @property
    def labels(self) -> dict[str, str]:
        """Of its incident."""
        return {"alertname": "GpuXid", "node": self.node, "gpu": self.uuid, "xid": str(self.xid)}


def throw_xid(fleet: Fleet, node: str, gpu: int, xid: int) -> Fault:
    state = fleet.gpu_state(node)
    said = fleet.output_of(python_module("simulator.gpu.fault", str(state), "--gpu", str(gpu), "xid", str(xid)))
    uuid = json.loads(state.read_bytes())["gpus"][gpu]["uuid"]
    return Fault(node, gpu, uuid, xid, datetime.fromisoformat(said.split()[0]))


def events_of(fleet: Fleet, fault: Fault) -> list[dict[str, Any]]:
    """As the control plane has them."""
    events: list[dict[str, Any]] = fleet.rest.get("/events", node=fault.node)["items"]
    return [event for event in events if event["subject"] == fault.uuid and f"XID {fault.xid} " in event["detail"]]


def incidents_of(fleet: Fleet, fault: Fault) -> list[dict[str, Any]]:
    """With their time lines, events and deliveries; newest first."""
    found = fleet.rest.get("/incidents", node=fault.node)["items"]
    return [fleet.rest.get(f"/incidents/{item['id']}") for item in found if item["labels"] == fault.labels]


def counted_once(fleet: Fleet, *faults: Fault) -> str:
    """Wait until each fault is one event and one incident, and no more than that. What is doubled fails at once."""

    def all_in() -> bool:
        for fault in faults:
            events, incidents = events_of(fleet, fault), incidents_of(fleet, fault)
            expect(len(events) <= 1, f"XID {fault.xid} of {fault.node} is {len(events)} events: {events}")
            expect(len(incidents) <= 1, f"XID {fault.xid} of {fault.node} is {len(incidents)} incidents")
            if not (events and incidents):
                return False
        return True

    wait_until(all_in, f"an event and an incident of each of {len(faults)} XIDs", 30)
    return f"{len(faults)} event{'s' * (len(faults) > 1)}, once each"


def attempts(fleet: Fleet) -> list[dict[str, Any]]:
    """Every attempt that reached the receiver, in order (`simulator.receiver.Taken`)."""
    text = fleet.deliveries.read_text()
    # A line that is being written has no end yet.
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def attempts_of(fleet: Fleet, fault: Fault, status: str) -> list[dict[str, Any]]:
    return [
        attempt
        for attempt in attempts(fleet)
        if attempt["body"]["status"] == status
        and any(fault.labels.items() <= alert["labels"].items() for alert in attempt["body"]["alerts"])
    ]


def told(fleet: Fleet, fault: Fault, status: str, timeout_seconds: float = 30) -> dict[str, Any]:
    """Wait until on-call was told that the fault's incident is `status`: the attempt that was taken."""
    taken: list[dict[str, Any]] = []

    def arrived() -> bool:
        taken[:] = [attempt for attempt in attempts_of(fleet, fault, status) if attempt["answered"] == 200]
        return bool(taken)

    wait_until(arrived, f"a webhook that XID {fault.xid} of {fault.node} is {status}", timeout_seconds)
    return taken[0]


def noted(fleet: Fleet, fault: Fault) -> None:
    """Wait until the control plane has noted that on-call took what it was told of the fault so far."""

    def all_delivered() -> bool:
        deliveries = [each for incident in incidents_of(fleet, fault) for each in incident["deliveries"]]
        return bool(deliveries) and all(each["state"] == "delivered" for each in deliveries)

    wait_until(all_delivered, f"the webhooks of XID {fault.xid} of {fault.node} are noted as delivered", 10)


def check_message(attempt: dict[str, Any]) -> None:
    """Signed, and of Alertmanager's version 4."""
    body = attempt["body"]
    expect(not attempt["refusal"], f"the signature does not hold: {attempt['refusal']}")
    expect(bool(attempt["delivery"]), "no X-Headworks-Delivery header")
    expect(body["version"] == "4" and set(body) == _BODY_FIELDS, f"not the body of version 4: {sorted(body)}")
    for alert in body["alerts"]:
        expect(set(alert) == _ALERT_FIELDS, f"not an alert of version 4: {sorted(alert)}")


def check_all_messages(fleet: Fleet) -> str:
    """Everything that came was signed, and of each delivery one attempt was taken."""
    came = attempts(fleet)
    for attempt in came:
        check_message(attempt)
    taken = Counter(attempt["delivery"] for attempt in came if attempt["answered"] == 200)
    said = Counter(_says(attempt["body"]) for attempt in came if attempt["answered"] == 200)
    expect(max(taken.values()) == 1, f"taken twice: {taken.most_common(3)}")
    expect(max(said.values()) == 1, f"said twice: {said.most_common(3)}")
    return f"{len(taken)} webhooks, {len(came)} attempts"


def _says(body: dict[str, Any]) -> str:
    alerts = [[alert["status"], alert["labels"], alert["startsAt"]] for alert in body["alerts"]]
    return json.dumps([body["status"], body["groupLabels"], alerts], sort_keys=True)


def seconds_after(fault: Fault, moment: datetime) -> float:
    return (moment - fault.at).total_seconds()


def received_at(attempt: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(attempt["received_at_ms"] / 1000, UTC)


def let_receiver_fail(fleet: Fleet, times: int) -> None:
    request = urllib.request.Request(  # noqa: S310
        f"{fleet.receiver_address}/fail", json.dumps({"times": times}).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=5).close()  # noqa: S310
