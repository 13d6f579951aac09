"""What charts mark of a time: revisions, cordons, incidents and steps of rollouts, and the call that gives them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.alerts.models import Incident
from controlplane.configs import publisher
from controlplane.core.changes import Actor, unit_of_work
from controlplane.core.fields import iso
from controlplane.core.models import Role
from controlplane.fleet.services import ENGINES, NODES
from controlplane.rollouts.models import Step
from controlplane.tenants import services as tenants
from controlplane.web.shown import marks
from controlplane.web.shown.marks import Mark
from tests.controlplane.conftest import Rest, rest_of  # noqa: F401
from tests.web.conftest import write
from tests.web.hardware import fault, node
from tests.web.rolling import restart_of

VERA = Actor("user", "vera", Role.OPERATOR)


def around(now: datetime | None = None) -> marks.Marks:
    """The marks of the last hour."""
    at_ms = int((now or timezone.now()).timestamp() * 1000)
    return marks.read(at_ms - 3_600_000, at_ms + 1_000)


def of_kind(kind: str) -> list[Mark]:
    return [mark for mark in around().found if mark.kind == kind]


def test_a_revision_says_who_changed_what_and_why(db: None) -> None:
    with unit_of_work(VERA, "more room for acme") as unit:
        tenants.create(unit, "acme", {})
        tenants.create(unit, "beta", {})
    publisher.publish()
    [mark] = of_kind(marks.REVISION)
    assert (mark.id, mark.name, mark.state, mark.page) == ("revision-1", "1", "published", "/revisions/1/")
    assert (mark.actor, mark.why) == ("vera", "more room for acme")
    assert mark.about == {"noun": "tenant", "key": "acme", "changes": 2}


@pytest.fixture
def rack(db: None) -> str:
    node("rack-1", engines=["llama-a"])
    return "rack-1"


def test_cordons_and_their_ends_are_marks_of_their_node(rack: str) -> None:
    with unit_of_work(VERA, "a fan is loud") as unit:
        NODES.cordon(unit, rack)
    with unit_of_work(VERA, "a new fan") as unit:
        NODES.uncordon(unit, rack)
    with unit_of_work(VERA, "slow") as unit:
        ENGINES.cordon(unit, "llama-a")
    told = [(mark.state, mark.name, mark.actor, mark.why) for mark in of_kind(marks.CORDON)]
    assert told == [
        ("cordoned", "rack-1", "vera", "a fan is loud"),
        ("uncordoned", "rack-1", "vera", "a new fan"),
        ("cordoned", "llama-a", "vera", "slow"),
    ]
    assert {mark.page for mark in of_kind(marks.CORDON)} == {"/fleet/rack-1/"}
    assert of_kind(marks.CORDON)[-1].labels == {"node": ("rack-1",), "pool": ("chat",)}


def test_another_change_of_a_node_is_no_cordon(rack: str) -> None:
    with unit_of_work(VERA, "elsewhere") as unit:
        ENGINES.update(unit, "llama-a", {"url": "http://10.2.0.8:8000"})
    assert of_kind(marks.CORDON) == []


def test_an_incident_is_marked_where_it_began_and_where_it_ended(rack: str) -> None:
    incident = fault(rack, ago_seconds=120)
    assert [mark.state for mark in of_kind(marks.INCIDENT)] == ["began"]
    Incident.objects.filter(pk=incident.pk).update(resolved_at=timezone.now())
    began, resolved = of_kind(marks.INCIDENT)
    assert (began.state, resolved.state) == ("began", "resolved")
    assert began.at_ms < resolved.at_ms
    assert began.name == "rack-1: XID 79 on GPU 3"
    assert began.labels == {"node": ("rack-1",)}
    assert began.page == f"/incidents/{incident.pk}/"


def test_an_incident_that_began_before_the_time_is_marked_by_its_end_alone(rack: str) -> None:
    incident = fault(rack, ago_seconds=7_200)
    assert of_kind(marks.INCIDENT) == []
    Incident.objects.filter(pk=incident.pk).update(resolved_at=timezone.now())
    assert [mark.state for mark in of_kind(marks.INCIDENT)] == ["resolved"]


def test_steps_of_a_rollout_are_marked_once_they_begin_and_where_they_fail(rack: str) -> None:
    rollout = restart_of("llama-a")
    Step.objects.filter(rollout=rollout).update(begun_at=None, state="waiting")
    first, second = rollout.steps.all()[:2]
    now = timezone.now()
    Step.objects.filter(pk=first.pk).update(begun_at=now - timedelta(seconds=60), ended_at=now, state="done")
    Step.objects.filter(pk=second.pk).update(begun_at=now, ended_at=now, state="failed", said="it did not drain")
    told = [(mark.state, mark.about["index"]) for mark in of_kind(marks.ROLLOUT)]
    assert told == [("begun", first.index), ("begun", second.index), ("failed", second.index)]
    assert of_kind(marks.ROLLOUT)[-1].why == "it did not drain"
    assert of_kind(marks.ROLLOUT)[0].labels == {"pool": ("chat",)}
    assert of_kind(marks.ROLLOUT)[0].page == f"/rollouts/{rollout.pk}/#step-{first.index}"


def test_what_is_about_another_node_or_pool_is_left_out_and_what_is_about_none_stays() -> None:
    here = Mark("1", 0, marks.CORDON, "cordoned", "n-1", "/", labels={"node": ("n-1",), "pool": ("a", "b")})
    nowhere = Mark("2", 0, marks.REVISION, "published", "2", "/")
    assert here.within({"node": "n-1"})
    assert here.within({"pool": "b", "node": "n-1"})
    assert here.within({"tenant": "acme"})
    assert not here.within({"node": "n-2"})
    assert not here.within({"pool": "c", "node": "n-1"})
    assert nowhere.within({"node": "n-2", "pool": "c", "tenant": "acme"})


def test_of_too_many_the_newest_are_kept_and_it_is_said(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "ROWS_MAX", 2)
    for number in range(3):
        write(lambda unit: tenants.create(unit, f"tenant-{number}", {}))  # noqa: B023 - called at once
        publisher.publish()
    assert [mark.name for mark in of_kind(marks.REVISION)] == ["2", "3"]
    assert around().cut == {marks.REVISION}


def test_many_marks_cost_a_query_a_kind(rack: str, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    for number in range(10):
        write(lambda unit: tenants.create(unit, f"tenant-{number}", {}))  # noqa: B023 - called at once
        publisher.publish()
        fault(rack, f"XID {number} on GPU 1")
    with django_assert_num_queries(4):
        assert len(around().found) == 20


@pytest.fixture
def asked(rest_of: Callable[[Role | None], Rest]) -> Callable[..., Any]:  # noqa: F811
    """What the call answers a viewer of the last hour."""
    rest = rest_of(Role.VIEWER)

    def ask(**more: str) -> Any:
        now = timezone.now()
        span = {"from": iso(now - timedelta(hours=1)), "to": iso(now + timedelta(seconds=1))}
        query = "&".join(f"{name}={value}" for name, value in {**span, **more}.items())
        return rest.get(f"/marks?{query}")

    return ask


def test_the_call_gives_what_the_charts_mark(rack: str, asked: Callable[..., Any]) -> None:
    with unit_of_work(VERA, "a fan is loud") as unit:
        NODES.cordon(unit, rack)
    publisher.publish()
    body = asked().json()
    assert {item["kind"] for item in body["items"]} == {"cordon", "revision"}
    [cordon] = asked(kind="cordon").json()["items"]
    assert cordon["labels"] == {"node": ["rack-1"]}
    assert cordon["actor"] == "vera"
    assert datetime.fromisoformat(cordon["at"]).tzinfo == UTC
    assert [item["kind"] for item in asked(node="rack-2").json()["items"]] == ["revision"]


def test_without_an_end_it_is_now(rack: str, rest_of: Callable[[Role | None], Rest]) -> None:  # noqa: F811
    with unit_of_work(VERA, "a fan is loud") as unit:
        NODES.cordon(unit, rack)
    rest = rest_of(Role.VIEWER)
    begin = iso(timezone.now() - timedelta(hours=1))
    assert [item["kind"] for item in rest.get(f"/marks?from={begin}").json()["items"]] == ["cordon"]
    future = rest.get(f"/marks?from={iso(timezone.now() + timedelta(hours=1))}")
    assert future.status_code == 422
    assert rest.get("/marks").status_code == 422


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ({"from": "2030-01-01T00:00:00Z", "to": "2029-01-01T00:00:00Z"}, "/from"),
        ({"from": "2000-01-01T00:00:00Z"}, "/from"),
        ({"from": "2030-01-01T00:00:00"}, "/from"),
        ({"kind": "weather"}, "/kind"),
    ],
)
def test_a_time_or_kind_without_sense_is_refused_by_its_name(
    db: None, asked: Callable[..., Any], query: dict[str, str], place: str
) -> None:
    answer = asked(**query)
    assert answer.status_code == 422
    assert place in str(answer.json())
