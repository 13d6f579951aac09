"""Routes, inhibitions, silences and maintenance windows, as people write them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from controlplane.alerts.models import AlertRoute, Incident, Inhibition, Silence
from controlplane.alerts.services import inhibition_pack
from controlplane.alerts.services.inhibition_pack import load_inhibitions
from controlplane.alerts.services.inhibitions import INHIBITIONS
from controlplane.alerts.services.rule_pack import Loaded
from controlplane.alerts.tasks import prune
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.fields import iso
from tests.controlplane.alerts.incident import opened, receiver
from tests.controlplane.conftest import Rest

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def silence(**changes: Any) -> dict[str, Any]:
    end = iso(timezone.now() + HOUR)
    return {"name": "disks", "matchers": ['alertname="Trouble"'], "ends_at": end, "comment": "a new disk", **changes}


def window(**changes: Any) -> dict[str, Any]:
    given = {"name": "sundays", "matchers": ['pool="chat"'], "days": ["sun"], "starts": "02:00", "ends": "04:00"}
    return {**given, **changes}


def inhibition(**changes: Any) -> dict[str, Any]:
    given = {"name": "node-down", "source_matchers": ['alertname="NodeLost"'], "target_matchers": ['node!=""']}
    return {**given, "equal": ["node"], **changes}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("/silences", silence(matchers=[]), "/matchers"),
    ("/silences", silence(matchers=["pool"]), "/matchers/0"),
    ("/silences", silence(matchers=['a="b"', 'pool=~"("']), "/matchers/1"),
    # Everything: an alert without labels must not match.
    ("/silences", silence(matchers=['tenant!="x"']), "/matchers"),
    ("/silences", silence(matchers=['a="b"'] * 21), "/matchers"),
    ("/silences", silence(ends_at="2020-01-01T00:00:00Z"), "/ends_at"),
    ("/silences", silence(ends_at="2020-01-01T00:00:00"), "/ends_at"),
    ("/silences", silence(ends_at="2999-01-01T00:00:00Z"), "/ends_at"),
    ("/silences", silence(comment=""), "/comment"),
    ("/silences", silence(owner="me"), "/owner"),
    ("/maintenance-windows", window(days=[]), "/days"),
    ("/maintenance-windows", window(days=["someday"]), "/days/0"),
    ("/maintenance-windows", window(starts="24:00"), "/starts"),
    ("/maintenance-windows", window(ends="4:00"), "/ends"),
    ("/maintenance-windows", window(time_zone="Mars/Olympus"), "/time_zone"),
    ("/maintenance-windows", window(time_zone="../../etc/passwd"), "/time_zone"),
    ("/inhibitions", inhibition(source_matchers=[]), "/source_matchers"),
    ("/inhibitions", inhibition(target_matchers=['a=~".*"']), "/target_matchers"),
    ("/inhibitions", inhibition(equal=["no label"]), "/equal/0"),
    ("/alert-routes", {"name": "test"}, "/name"),
    ("/alert-routes", {"name": "a", "receivers": ["oncall", "typo"]}, "/receivers/1"),
    ("/alert-routes", {"name": "a", "group_by": ["...", "pool"]}, "/group_by"),
    ("/alert-routes", {"name": "a", "group_by": ["no label"]}, "/group_by/0"),
    ("/alert-routes", {"name": "a", "repeat_interval_ms": 1000}, "/repeat_interval_ms"),
    ("/alert-routes", {"name": "a", "group_wait_ms": -1}, "/group_wait_ms"),
]


@pytest.mark.parametrize(("path", "body", "at"), REFUSED)
def test_what_does_not_fit_is_refused_where_it_stands(admin: Rest, path: str, body: dict[str, Any], at: str) -> None:
    receiver("oncall")
    answer = admin.post(path, body)
    assert answer.status_code == 422, answer.content
    assert at in {problem["path"].removesuffix("/literal['...']") for problem in answer.json()["problems"]} or any(
        problem["path"].startswith(at) for problem in answer.json()["problems"]
    )


def test_matchers_are_kept_in_one_form(admin: Rest) -> None:
    answer = admin.post("/silences", silence(matchers=[' pool =~ "chat-.*"', "severity=critical"]))
    assert answer.json()["item"]["matchers"] == ['pool=~"chat-.*"', 'severity="critical"']


def test_a_silence_says_whose_it_is_and_what_fires_that_it_matches_also_when_it_is_only_tried(operator: Rest) -> None:
    opened(node="n1")
    opened(node="n2")
    tried = operator.post("/silences?dry_run=true&reason=a+try", silence()).json()
    assert tried["item"]["owner"] == "operator-0/test"
    (warning,) = tried["warnings"]
    assert (warning["path"], warning["rule"]) == ("/matchers", "matched")
    assert warning["message"].startswith("2 alerts that fire are matched: GPU 3 fell off the bus; ")
    assert not Silence.objects.exists()
    answer = operator.post("/silences", silence(matchers=['alertname="Typo"']))
    assert answer.json()["warnings"][0]["message"] == "no alert that fires is matched"


def test_a_silence_is_extended_and_ended_early_and_stays_in_the_list(operator: Rest) -> None:
    operator.post("/silences", silence())
    later = iso(timezone.now() + 5 * HOUR)
    changed = operator.patch("/silences/disks", {"ends_at": later, "comment": "it takes longer"}).json()["item"]
    assert (changed["ends_at"], changed["comment"]) == (later, "it takes longer")
    assert operator.get("/silences/disks").json()["state"] == "active"
    assert operator.post("/silences/disks/expire").status_code == 200
    (item,) = operator.get("/silences").json()["items"]
    assert item["state"] == "ended"
    assert operator.post("/silences/disks/expire").json()["changed"] is False
    assert operator.patch("/silences/disks", {"ends_at": later}).json()["code"] == "ended"
    assert operator.post("/silences/other/expire").status_code == 404


def test_a_silence_that_has_not_begun_waits_and_can_be_called_off(operator: Rest) -> None:
    start, end = iso(timezone.now() + HOUR), iso(timezone.now() + 2 * HOUR)
    operator.post("/silences", silence(starts_at=start, ends_at=end))
    assert operator.get("/silences/disks").json()["state"] == "waiting"
    operator.post("/silences/disks/expire")
    assert operator.get("/silences/disks").json()["state"] == "ended"


def test_silences_that_ended_long_ago_are_forgotten(operator: Rest) -> None:
    operator.post("/silences", silence())
    Silence.objects.update(ends_at=timezone.now() - timedelta(days=29))
    assert prune() == 0
    Silence.objects.update(ends_at=timezone.now() - timedelta(days=31))
    assert prune() == 1


def test_a_window_says_whether_it_is_on_and_when_that_changes(operator: Rest) -> None:
    days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
    answer = operator.post("/maintenance-windows", window(days=days, starts="00:00", ends="00:00"))
    assert answer.json()["item"]["days"] == ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    shown = operator.get("/maintenance-windows/sundays").json()
    assert shown["on"] is True
    assert shown["next_change"] is not None
    operator.patch("/maintenance-windows/sundays", {"enabled": False})
    shown = operator.get("/maintenance-windows/sundays").json()
    assert (shown["on"], shown["next_change"]) == (False, None)


# Where an alert would go


@pytest.fixture
def tried(admin: Rest) -> Callable[..., dict[str, Any]]:
    receiver("oncall")
    receiver("grave", min_severity="critical")
    receiver("chat-team", min_severity="info")

    def ask(*labels: str, source: str = "rule") -> dict[str, Any]:
        query = "&".join(f"label={label}" for label in labels)
        answer = admin.get(f"/alert-routes/test?{query}&source={source}")
        assert answer.status_code == 200, answer.content
        found: dict[str, Any] = answer.json()
        return found

    return ask


def test_without_routes_it_goes_to_all_that_it_is_grave_enough_for(tried: Callable[..., dict[str, Any]]) -> None:
    found = tried("alertname=KvFull", "pool=chat", "engine=e1", "severity=warning")
    assert (found["route"], found["every_receiver"]) == (None, True)
    assert found["group"] == {"alertname": "KvFull", "pool": "chat"}
    assert found["receivers"] == ["chat-team", "oncall"]
    assert tried("alertname=GpuXid", "node=n1", "severity=critical", source="event")["group"] == {
        "alertname": "GpuXid",
        "node": "n1",
    }


def test_the_tester_names_routes_group_receivers_and_what_keeps_it_mute(
    admin: Rest, tried: Callable[..., dict[str, Any]]
) -> None:
    admin.post(
        "/alert-routes", {"name": "log", "order": 1, "receivers": ["chat-team"], "goes_on": True, "group_by": []}
    )
    admin.post("/alert-routes", {"name": "chat", "matchers": ['pool="chat"'], "receivers": ["oncall"]})
    admin.post("/silences", silence(matchers=['pool="chat"']))
    found = tried("alertname=KvFull", "pool=chat")
    assert (found["route"], found["routes"], found["group"]) == ("log", ["log", "chat"], {})
    assert (found["receivers"], found["every_receiver"]) == (["chat-team", "oncall"], False)
    assert found["muted_by"] == {"silence": ["disks"]}
    assert found["group_wait_ms"] == AlertRoute().group_wait_ms
    AlertRoute.objects.filter(name="log").update(enabled=False)
    assert tried("alertname=KvFull", "pool=chat")["route"] == "chat"


@pytest.mark.parametrize("label", ["", "0x=1", "__name__=up"])
def test_labels_that_are_none_are_refused(admin: Rest, label: str) -> None:
    assert admin.get(f"/alert-routes/test?label={label}").status_code == 422


def test_a_severity_that_there_is_none_of_is_refused(admin: Rest) -> None:
    receiver("oncall")
    answer = admin.get("/alert-routes/test?label=severity=page")
    assert (answer.status_code, answer.json()["problems"][0]["path"]) == (422, "/labels/severity")


def test_a_receiver_that_a_route_names_stays(admin: Rest) -> None:
    receiver("oncall")
    admin.post("/alert-routes", {"name": "all", "receivers": ["oncall"]})
    answer = admin.delete("/receivers/oncall")
    assert (answer.status_code, answer.json()["code"]) == (409, "in_use")


# The inhibitions that Headworks brings


def load(file: Path = inhibition_pack.FILE) -> Loaded:
    with unit_of_work(SYSTEM, "a test") as unit:
        return load_inhibitions(unit, file)


def test_the_pack_is_loaded_once_and_what_people_did_to_it_stays() -> None:
    first = load()
    assert len(first.created) == Inhibition.objects.count() > 10
    assert load().document() == Loaded().document()
    edited, deleted = first.created[:2]
    with unit_of_work(SYSTEM, "a test") as unit:
        INHIBITIONS.update(unit, edited, {"enabled": False})
        INHIBITIONS.delete(unit, deleted)
    again = load()
    assert (again.kept, again.deleted, again.created) == ([edited], [deleted], [])
    assert Inhibition.objects.get(name=edited).enabled is False


def test_a_later_pack_changes_and_withdraws_what_nobody_touched(tmp_path: Path) -> None:
    file = tmp_path / "inhibitions.yml"
    one = "inhibit_rules:\n- {name: %s, source_matchers: ['a=\"b\"'], target_matchers: ['c=\"%s\"'], equal: [node]}\n"
    file.write_text(one % ("first", "d"))
    assert load(file).created == ["first"]
    file.write_text(one % ("first", "e"))
    assert load(file).changed == ["first"]
    assert Inhibition.objects.get().target_matchers == ['c="e"']
    file.write_text(one % ("second", "e"))
    loaded = load(file)
    assert (loaded.created, loaded.removed) == (["second"], ["first"])
    with unit_of_work(SYSTEM, "a test") as unit:
        INHIBITIONS.create(unit, "third", {"source_matchers": ['a="b"'], "target_matchers": ['c="d"']})
    file.write_text(one % ("third", "e"))
    assert load(file).taken == ["third"]


def test_with_the_pack_a_lost_gpu_and_its_engines_are_one_page() -> None:
    load()
    receiver("oncall")
    opened(alertname="GpuXid")
    opened(alertname="GpuLost")
    opened(alertname="EngineDown", engine="e1")
    told = [
        incident.labels["alertname"] for incident in Incident.objects.order_by("pk") if incident.deliveries.exists()
    ]
    assert told == ["GpuXid"]
