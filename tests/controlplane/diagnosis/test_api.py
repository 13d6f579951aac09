"""REST of the diagnosis: who may read and write it, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from controlplane.core.fields import iso
from controlplane.diagnosis import standing
from controlplane.diagnosis.models import Finding, Proposal
from controlplane.fleet.models import Pool
from tests.controlplane.conftest import Rest
from tests.controlplane.diagnosis.conftest import INTERVAL, Sure, finding

Round = Callable[..., datetime]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch, detector: Sure) -> None:
    monkeypatch.setattr(standing, "DETECTORS", (detector,))


def test_the_grid_says_how_each_detector_stands(rounds: Round, detector: Sure, viewer: Rest):
    (card,) = viewer.get("/diagnosis").json()["detectors"]
    assert (card["state"], card["looked_at"], card["findings"], card["history"]) == ("waiting", None, [], [])
    begun = rounds()
    assert viewer.get("/diagnosis").json()["detectors"][0]["state"] == "clear"
    detector.finds = [finding()]
    begun = rounds()
    grid = viewer.get("/diagnosis").json()
    (card,) = grid["detectors"]
    assert grid["looked_at"] == card["looked_at"] == iso(begun)
    assert {name: card[name] for name in ("number", "name", "title", "explanation", "state", "blind")} == {
        "number": 1,
        "name": "kv_exhausted",
        "title": "KV cache exhausted",
        "explanation": "Requests wait for KV cache.",
        "state": "found",
        "blind": None,
    }
    assert [(each["subject"], each["confidence_permille"]) for each in card["findings"]] == [("pool/chat", 900)]
    detector.finds = []
    ended = rounds()
    (card,) = viewer.get("/diagnosis").json()["detectors"]
    assert [(each["since"], each["cleared_at"]) for each in card["history"]] == [(iso(begun), iso(ended))]
    detector.fails = ValueError()
    rounds()
    (card,) = viewer.get("/diagnosis").json()["detectors"]
    assert (card["state"], card["blind"]) == ("blind", "failed here, and the log says more: ValueError")


def test_findings_are_listed_newest_first_by_pages_and_states(rounds: Round, detector: Sure, viewer: Rest):
    detector.finds = [finding("pool/chat")]
    rounds()
    detector.finds = [finding("pool/other")]
    at = rounds()
    page = viewer.get("/diagnosis/findings?limit=1").json()
    assert [each["subject"] for each in page["items"]] == ["pool/other"]
    page = viewer.get(f"/diagnosis/findings?limit=1&after={page['next']}").json()
    assert ([each["subject"] for each in page["items"]], page["next"]) == (["pool/chat"], None)
    (over,) = viewer.get("/diagnosis/findings?state=cleared").json()["items"]
    assert (over["subject"], over["cleared_at"], over["seen_at"]) == ("pool/chat", iso(at), iso(at - INTERVAL))
    assert viewer.get("/diagnosis/findings?detector=hardware").json()["items"] == []
    assert viewer.get("/diagnosis/findings?state=odd").status_code == 422


def test_one_is_read_with_its_evidence_and_levers(rounds: Round, detector: Sure, viewer: Rest):
    detector.finds = [finding()]
    rounds()
    seen_at = rounds()
    answer = viewer.get(f"/diagnosis/findings/{Finding.objects.get().pk}").json()
    assert (answer["summary"], answer["tenants"], answer["seen_at"]) == ("KV cache is full", ["acme"], iso(seen_at))
    assert answer["evidence"][0]["limit"] == 0.95
    assert [(lever["key"], lever["state"], lever["title"]) for lever in answer["levers"]] == [
        ("lower_admission", "proposed", "Admit less")
    ]


def test_what_does_not_last_yet_cannot_be_read(rounds: Round, detector: Sure, viewer: Rest):
    detector.finds = [finding()]
    rounds()
    Finding.objects.update(state="pending")
    assert viewer.get(f"/diagnosis/findings/{Finding.objects.get().pk}").status_code == 404
    assert viewer.get("/diagnosis/findings").json()["items"] == []


def test_levers_are_listed_by_state(rounds: Round, detector: Sure, viewer: Rest):
    detector.finds = [finding()]
    rounds()
    assert [each["key"] for each in viewer.get("/diagnosis/levers?state=proposed").json()["items"]] == [
        "lower_admission"
    ]
    assert viewer.get("/diagnosis/levers?state=held").json()["items"] == []


@pytest.mark.parametrize("verb", ["apply", "revert", "dismiss"])
def test_viewers_read_and_operators_write(rounds: Round, detector: Sure, viewer: Rest, outsider: Rest, verb: str):
    detector.finds = [finding()]
    rounds()
    lever = f"/diagnosis/findings/{Finding.objects.get().pk}/levers/lower_admission"
    assert viewer.get(lever).status_code == 200
    assert viewer.post(f"{lever}/{verb}").status_code == 403
    assert outsider.get(lever).status_code == outsider.post(f"{lever}/{verb}").status_code == 401
    assert Proposal.objects.get().state == "proposed"
    assert Pool.objects.get().kv_admit_permille == 900


def test_a_write_needs_a_reason_and_is_answered_again_by_its_key(rounds: Round, detector: Sure, operator: Rest):
    detector.finds = [finding()]
    rounds()
    lever = f"/diagnosis/findings/{Finding.objects.get().pk}/levers/lower_admission"
    assert operator.post(f"{lever}/apply?reason=").status_code == 422
    first = operator.post(f"{lever}/apply", **{"Idempotency-Key": '"once"'})
    again = operator.post(f"{lever}/apply", **{"Idempotency-Key": '"once"'})
    assert (first.status_code, first.json()["change_id"]) == (200, again.json()["change_id"])
