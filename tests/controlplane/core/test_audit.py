from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from django.utils import timezone

from controlplane.core.changes import Actor, unit_of_work
from controlplane.core.models import AuditEntry
from controlplane.fleet import services as fleet


@pytest.fixture
def entries(operator, admin):
    operator.post("/tenants?reason=one", {"name": "acme"})
    operator.patch("/tenants/acme?reason=two", {"weight": 2})
    admin.post("/tenants?reason=three", {"name": "globex"})


def reasons(viewer, query: str) -> list[str]:
    answer = viewer.get(f"/audit?{query}")
    assert answer.status_code == 200, answer.content
    return [item["reason"] for item in answer.json()["items"]]


@pytest.mark.usefixtures("entries")
def test_entries_come_newest_first_in_pages(viewer):
    first = viewer.get("/audit?limit=2").json()
    second = viewer.get(f"/audit?limit=2&after={first['next']}").json()
    assert [item["reason"] for item in first["items"] + second["items"]] == ["three", "two", "one"]
    assert second["next"] is None


@pytest.mark.usefixtures("entries")
def test_entries_are_found_by_noun_key_and_actor(viewer):
    assert reasons(viewer, "noun=tenant&key=acme") == ["two", "one"]
    actor = viewer.get("/audit?limit=1").json()["items"][0]["actor"]
    assert reasons(viewer, f"actor={actor}") == ["three"]
    assert reasons(viewer, "noun=pool") == []


@pytest.mark.usefixtures("entries")
def test_entries_are_found_by_part_of_their_reason_in_any_case(viewer):
    assert reasons(viewer, "reason=T") == ["three", "two"]
    assert reasons(viewer, "reason=WO") == ["two"]
    # No pattern, only text.
    assert reasons(viewer, f"reason={quote('%')}") == reasons(viewer, "reason=t_o") == []


def test_entries_are_found_by_address_and_by_change(viewer):
    for number in (1, 2):
        with unit_of_work(Actor("user", "ada", f"10.0.0.{number}"), f"from {number}") as unit:
            fleet.NODES.create(unit, f"n{number}-a", {})
            fleet.NODES.create(unit, f"n{number}-b", {})
    assert reasons(viewer, "address=10.0.0.1") == ["from 1"] * 2
    assert reasons(viewer, f"change_id={unit.change_id}") == ["from 2"] * 2
    assert reasons(viewer, f"change_id={unit.change_id}&address=10.0.0.1") == []


@pytest.mark.usefixtures("entries")
def test_entries_are_found_by_revision(viewer):
    AuditEntry.objects.filter(reason="two").update(revision=7)
    assert reasons(viewer, "revision=7") == ["two"]
    assert reasons(viewer, "revision=8") == []


def test_entries_are_found_from_one_moment_until_before_another(viewer, monkeypatch):
    began = datetime(2030, 1, 31, 12, tzinfo=UTC)
    for minute in range(3):
        monkeypatch.setattr(timezone, "now", lambda at=began + timedelta(minutes=minute): at)
        with unit_of_work(Actor("user", "ada"), str(minute)) as unit:
            fleet.NODES.create(unit, f"n{minute}", {})
    monkeypatch.undo()
    assert reasons(viewer, "since=2030-01-31T12:01:00Z") == ["2", "1"]
    assert reasons(viewer, "until=2030-01-31T12:01:00Z") == ["0"]
    assert reasons(viewer, f"since={quote('2030-01-31T15:01:00+03:00')}&until=2030-01-31T12:02:00Z") == ["1"]


@pytest.mark.usefixtures("entries")
def test_an_entry_says_what_was_before_and_after(viewer):
    entry = viewer.get("/audit?key=acme&limit=1").json()["items"][0]
    assert (entry["before"]["weight"], entry["after"]["weight"]) == (1, 2)
    assert (entry["action"], entry["actor_kind"]) == ("update", "token")
    assert entry["at"].endswith("Z")


@pytest.mark.parametrize("path", ["/audit", "/audit/export"])
@pytest.mark.parametrize(
    "query",
    [
        "noun=%00", "after=-1", f"key={'x' * 201}", f"after={2**64}", "reason=%00", "since=yesterday",
        "since=2030-01-31T12:00:00", f"until={quote('9999-12-31T23:59:59-14:00')}", "change_id=1", "revision=0",
        f"revision={2**64}",
    ],
)  # fmt: skip
def test_a_bad_filter_is_refused(viewer, path, query):
    answer = viewer.get(f"{path}?{query}")
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["problems"]] == [f"/{query.partition('=')[0]}"]


@pytest.mark.parametrize("query", ["/audit?limit=0", "/audit/export?format=xml"])
def test_what_only_one_of_the_two_takes_is_refused_too(viewer, query):
    assert viewer.get(query).status_code == 422
