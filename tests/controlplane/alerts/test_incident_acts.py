"""What people do about an incident: acknowledge, assign, snooze, comment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.alerts.models import Delivery, Incident, IncidentEntry, ReceiverKind
from controlplane.alerts.services import notifying
from controlplane.core.fields import iso
from controlplane.core.models import AuditEntry, User
from tests.controlplane.alerts.incident import opened, receiver, resolved
from tests.controlplane.conftest import Rest

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
ACTS: list[tuple[str, dict[str, Any]]] = [
    ("acknowledge", {}),
    ("assign", {"assignee": None}),
    ("snooze", {"until": None}),
]


@pytest.fixture
def incident(db: None) -> Incident:
    receiver("oncall")
    return opened()


def last_line(incident: Incident) -> tuple[str, str]:
    entry = IncidentEntry.objects.filter(incident=incident).latest("pk")
    return entry.kind, entry.text


def occasions() -> list[str]:
    return list(Delivery.objects.order_by("number").values_list("occasion", flat=True))


def look(later: timedelta) -> int:
    moment = timezone.now() + later
    return notifying.look_at_due(lambda: moment)


def test_an_acknowledged_one_is_repeated_to_nobody_and_says_who_has_seen_it(incident: Incident, operator: Rest) -> None:
    answer = operator.post(f"/incidents/{incident.pk}/acknowledge?reason=on+it")
    item = answer.json()["item"]
    assert (answer.status_code, item["acknowledged_by"]) == (200, "operator-0/test")
    assert item["acknowledged_at"] is not None
    assert last_line(incident) == ("acknowledged", "acknowledged by operator-0/test: on it")
    audited = AuditEntry.objects.latest("pk")
    assert (audited.noun, audited.key, audited.reason) == ("incident", str(incident.pk), "on it")
    assert look(24 * HOUR) == 0
    # The first who says so has.
    assert operator.post(f"/incidents/{incident.pk}/acknowledge").json()["changed"] is False
    # What becomes graver is told all the same.
    opened("critical")
    assert occasions() == ["first"]


def test_what_becomes_graver_after_that_is_told(operator: Rest) -> None:
    receiver("oncall")
    incident = opened("warning")
    operator.post(f"/incidents/{incident.pk}/acknowledge")
    opened("critical")
    assert occasions() == ["first", "changed"]


def test_receivers_that_can_take_it_are_told_who_has_seen_it(incident: Incident, operator: Rest) -> None:
    duty = receiver("duty")
    type(duty).objects.filter(pk=duty.pk).update(kind=ReceiverKind.PAGERDUTY, url="")
    told = opened(node="n2")
    operator.post(f"/incidents/{told.pk}/acknowledge")
    sent = Delivery.objects.filter(occasion="acknowledged")
    assert [(row.receiver.name, row.incident_id, row.status) for row in sent] == [("duty", told.pk, "firing")]


def test_it_is_given_to_a_person_and_taken_back(incident: Incident, operator: Rest) -> None:
    User.objects.create(username="ada")
    path = f"/incidents/{incident.pk}/assign?reason=hardware"
    assert operator.post(path, {"assignee": "ada"}).json()["item"]["assignee"] == "ada"
    assert last_line(incident) == ("assigned", "assigned to ada by operator-0/test: hardware")
    assert operator.post(path, {"assignee": None}).json()["item"]["assignee"] is None


@pytest.mark.parametrize("name", ["nobody", "left"])
def test_it_is_given_to_nobody_who_cannot_log_in(incident: Incident, operator: Rest, name: str) -> None:
    User.objects.create(username="left", is_active=False)
    answer = operator.post(f"/incidents/{incident.pk}/assign", {"assignee": name})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["path"] == "/assignee"


def test_a_snoozed_one_is_told_again_when_the_snooze_ends(incident: Incident, operator: Rest) -> None:
    until = timezone.now() + 2 * HOUR
    answer = operator.post(f"/incidents/{incident.pk}/snooze?reason=a+part+is+ordered", {"until": iso(until)})
    assert answer.json()["item"]["snoozed_until"] == iso(until)
    kind, text = last_line(incident)
    assert (kind, text) == (
        "snoozed",
        f"snoozed until {until:%Y-%m-%d %H:%M} UTC by operator-0/test: a part is ordered",
    )
    assert look(HOUR) == 0
    assert look(2 * HOUR + timedelta(minutes=1)) == 1
    assert occasions() == ["first", "repeat"]


def test_a_snooze_that_is_taken_back_is_over(incident: Incident, operator: Rest) -> None:
    path = f"/incidents/{incident.pk}/snooze"
    operator.post(path, {"until": iso(timezone.now() + 24 * HOUR)})
    assert operator.post(path, {"until": None}).json()["item"]["snoozed_until"] is None
    assert look(5 * HOUR) == 1


def test_the_end_of_a_snoozed_one_is_told(incident: Incident, operator: Rest) -> None:
    operator.post(f"/incidents/{incident.pk}/snooze", {"until": iso(timezone.now() + HOUR)})
    resolved(incident)
    assert occasions() == ["first", "resolved"]


@pytest.mark.parametrize("hours", [-1, 24 * 30 + 1])
def test_a_snooze_ends_within_its_limit(incident: Incident, operator: Rest, hours: int) -> None:
    answer = operator.post(f"/incidents/{incident.pk}/snooze", {"until": iso(timezone.now() + hours * HOUR)})
    assert (answer.status_code, answer.json()["problems"][0]["path"]) == (422, "/until")


def test_a_comment_is_a_line_also_of_one_that_has_ended(incident: Incident, operator: Rest) -> None:
    resolved(incident)
    answer = operator.post(f"/incidents/{incident.pk}/comment", {"text": "It was the riser card."})
    assert answer.status_code == 200
    assert last_line(incident) == ("comment", "operator-0/test: It was the riser card.")
    assert AuditEntry.objects.latest("pk").after == {"comment": "It was the riser card."}
    assert operator.post(f"/incidents/{incident.pk}/comment", {"text": ""}).status_code == 422


@pytest.mark.parametrize(("act", "body"), ACTS)
def test_what_has_ended_takes_no_more_of_it(incident: Incident, operator: Rest, act: str, body: dict[str, Any]) -> None:
    resolved(incident)
    answer = operator.post(f"/incidents/{incident.pk}/{act}", body)
    assert (answer.status_code, answer.json()["code"]) == (409, "resolved")
    assert operator.post(f"/incidents/999999/{act}", body).status_code == 404


@pytest.mark.parametrize(("act", "body"), [*ACTS, ("resolve", {}), ("comment", {"text": "x"})])
def test_a_dry_run_does_nothing_of_it_and_a_viewer_may_not(
    incident: Incident, operator: Rest, viewer: Rest, act: str, body: dict[str, Any]
) -> None:
    before = list(IncidentEntry.objects.values())
    assert operator.post(f"/incidents/{incident.pk}/{act}?dry_run=true&reason=a+try", body).status_code == 200
    assert viewer.post(f"/incidents/{incident.pk}/{act}", body).status_code == 403
    assert list(IncidentEntry.objects.values()) == before
    assert Incident.objects.get().state == "firing"


def test_they_are_listed_by_severity_pool_and_whether_somebody_has_seen_them(operator: Rest) -> None:
    seen = opened("critical", pool="chat")
    mild = opened("warning", pool="code")
    operator.post(f"/incidents/{seen.pk}/acknowledge")

    def listed(query: str) -> list[int]:
        return [item["id"] for item in operator.get(f"/incidents?{query}").json()["items"]]

    assert listed("severity=critical") == [seen.pk]
    assert listed("pool=code") == [mild.pk]
    assert listed("acknowledged=true") == [seen.pk]
    assert listed("acknowledged=false&state=firing") == [mild.pk]
    (item,) = operator.get("/incidents?pool=chat").json()["items"]
    assert (item["alerts_firing"], item["alerts_resolved"]) == (1, 0)


def test_its_alerts_are_shown_page_by_page(incident: Incident, viewer: Rest) -> None:
    shown = viewer.get(f"/incidents/{incident.pk}").json()
    assert [alert["labels"] for alert in shown["alerts"]] == [incident.labels]
    assert shown["alerts_firing"] == 1
    listed = viewer.get(f"/incidents/{incident.pk}/alerts?state=firing").json()
    assert listed == {"items": shown["alerts"], "next": None}
    assert viewer.get(f"/incidents/{incident.pk}/alerts?state=resolved").json()["items"] == []
