"""Levers that are applied by themselves: off until an admin says so, within limits, and never over a person's head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.models import AuditEntry
from controlplane.diagnosis.detector import Edit
from controlplane.diagnosis.models import LeverPolicy, Proposal
from controlplane.diagnosis.services import acting, policies
from controlplane.diagnosis.services.policies import LEVER_POLICIES
from controlplane.fleet.models import Pool
from controlplane.fleet.services import POOLS
from tests.controlplane.conftest import Rest
from tests.controlplane.diagnosis.conftest import INTERVAL, LOWER, WINDOW, Sure, finding

Round = Callable[..., datetime]
BODY = {"name": "kv", "detector": "kv_exhausted", "lever": "lower_admission"}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "DETECTORS", (Sure(),))


@pytest.fixture
def policy(db: None) -> Callable[..., LeverPolicy]:
    def make(**fields: Any) -> LeverPolicy:
        given = {"detector": "kv_exhausted", "lever": "lower_admission", "enabled": True, **fields}
        with unit_of_work(SYSTEM, "for a test") as unit:
            return LEVER_POLICIES.create(unit, "kv", given)

    return make


def test_nothing_is_applied_until_it_is_switched_on(
    rounds: Round, detector: Sure, policy: Callable[..., LeverPolicy], admin: Rest
):
    policy(enabled=False)
    detector.finds = [finding()]
    rounds(2)
    assert Proposal.objects.get().state == "proposed"
    assert admin.patch("/lever-policies/kv", {"enabled": True}).status_code == 200
    rounds()
    assert Proposal.objects.get().state == "applied"
    assert Pool.objects.get().kv_admit_permille == 800


def test_the_audit_names_the_policy(rounds: Round, detector: Sure, policy: Callable[..., LeverPolicy]):
    policy()
    detector.finds = [finding()]
    rounds()
    row = Proposal.objects.get()
    assert (row.applied_by, row.policy) == ("headworks", "kv")
    entry = AuditEntry.objects.get(noun="pool", change_id=str(row.change_id))
    assert (entry.actor_kind, entry.actor) == ("system", "headworks")
    assert entry.reason == "policy kv: kv_exhausted at pool/chat, confidence 900 per mille"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"min_confidence_permille": 950}, "policy kv: the confidence is 900 ‰, and 950 ‰ is asked for"),
        ({"pools": ["other"]}, "policy kv: it is not for pool chat"),
    ],
)
def test_it_says_at_the_offer_why_it_does_not(
    rounds: Round, detector: Sure, policy: Callable[..., LeverPolicy], fields: dict[str, Any], says: str
):
    with unit_of_work(SYSTEM, "for a test") as unit:
        POOLS.create(unit, "other", {"model": "llama"})
    policy(**fields)
    detector.finds = [finding()]
    rounds()
    row = Proposal.objects.get()
    assert (row.state, row.said) == ("proposed", says)


def test_it_applies_no_more_an_hour_than_it_may(rounds: Round, detector: Sure, policy: Callable[..., LeverPolicy]):
    policy(max_an_hour=1)
    detector.finds = [finding(f"pool/{name}") for name in ("chat", "other")]
    rounds()
    assert sorted(Proposal.objects.values_list("state", flat=True)) == ["applied", "proposed"]
    assert "1 within an hour" in Proposal.objects.get(state="proposed").said
    Proposal.objects.filter(state="applied").update(applied_at=timezone.now() - timedelta(hours=1))
    rounds()
    assert not Proposal.objects.filter(state="proposed").exists()


def test_a_person_s_own_change_wins(rounds: Round, detector: Sure, policy: Callable[..., LeverPolicy], operator: Rest):
    policy(stand_back_seconds=600)
    operator.patch("/pools/chat", {"kv_admit_permille": 850})
    detector.finds = [finding()]
    rounds()
    row = Proposal.objects.get()
    assert (row.state, Pool.objects.get().kv_admit_permille) == ("proposed", 850)
    entry = AuditEntry.objects.filter(noun="pool").latest("id")
    assert row.said.startswith(f"policy kv: stands back: {entry.actor} changed pool chat at 20")
    rounds(after=timedelta(seconds=601))
    assert Pool.objects.get().kv_admit_permille == 800


def test_a_person_s_change_of_another_field_is_none_of_its(
    rounds: Round, detector: Sure, policy: Callable[..., LeverPolicy], operator: Rest
):
    policy()
    operator.patch("/pools/chat", {"queue_cap": 5})
    detector.finds = [finding()]
    rounds()
    assert Proposal.objects.get().state == "applied"


def test_it_does_not_try_again_what_did_not_help(rounds: Round, detector: Sure, policy: Callable[..., LeverPolicy]):
    policy(max_an_hour=60)
    detector.finds = [finding()]
    rounds()
    rounds(6, after=WINDOW)
    assert Pool.objects.get().kv_admit_permille == 900
    offered, reverted = Proposal.objects.order_by("-pk")
    assert (reverted.state, offered.state) == ("reverted", "proposed")
    assert reverted.said.startswith("taken back by headworks: policy kv: lever lower_admission")
    rounds(4)
    assert Pool.objects.get().kv_admit_permille == 900
    offered.refresh_from_db()
    assert offered.said == "policy kv: it was applied to this finding before and did not end it"


def test_it_leaves_it_offered_back_where_it_is_not_told_to_take_back(
    rounds: Round, detector: Sure, policy: Callable[..., LeverPolicy]
):
    policy(revert_if_not_held=False)
    detector.finds = [finding()]
    rounds()
    rounds(6, after=WINDOW)
    assert (Proposal.objects.get().state, Pool.objects.get().kv_admit_permille) == ("offered_back", 800)


def test_it_takes_nothing_back_over_a_person_s_head(
    rounds: Round, detector: Sure, policy: Callable[..., LeverPolicy], operator: Rest
):
    policy()
    detector.finds = [finding()]
    rounds()
    operator.patch("/pools/chat", {"kv_admit_permille": 777})
    rounds(7, after=WINDOW)
    row = Proposal.objects.get()
    assert (row.state, Pool.objects.get().kv_admit_permille) == ("offered_back", 777)
    assert "policy kv cannot take it back: changed since it was applied" in row.said


def test_one_lever_of_a_finding_at_a_time(rounds: Round, detector: Sure, policy: Callable[..., LeverPolicy]):
    policy(max_an_hour=60)
    with unit_of_work(SYSTEM, "for a test") as unit:
        LEVER_POLICIES.create(unit, "queue", {**_of("shorten_queue"), "enabled": True})
    other = replace(LOWER, key="shorten_queue", edits=(Edit("pools", "chat", {"queue_cap": 5}),))
    detector.finds = [finding(levers=(LOWER, other))]
    rounds()
    assert Proposal.objects.get(key="lower_admission").state == "applied"
    waiting = Proposal.objects.get(key="shorten_queue")
    assert waiting.said == "policy queue: waits: lever lower_admission of this finding is being verified"


def _of(lever: str) -> dict[str, Any]:
    return {"detector": "kv_exhausted", "lever": lever}


def test_two_workers_apply_it_once(rounds: Round, detector: Sure, policy: Callable[..., LeverPolicy]):
    detector.finds = [finding()]
    at = rounds()
    row = policy()
    offer = Proposal.objects.select_related("finding").get()
    assert acting._apply(row, offer, at) == ""
    assert "1 within an hour" in acting._apply(row, offer, at + INTERVAL)
    assert AuditEntry.objects.filter(noun="pool", reason__startswith="policy").count() == 1


def test_admins_write_policies_and_all_read_them(admin: Rest, operator: Rest, viewer: Rest):
    assert operator.post("/lever-policies", BODY).status_code == 403
    created = admin.post("/lever-policies", BODY)
    assert created.status_code == 201
    assert created.json()["item"] == {
        **BODY, "enabled": False, "max_an_hour": 1, "min_confidence_permille": 800, "pools": None,
        "revert_if_not_held": True, "stand_back_seconds": 3600,
    }  # fmt: skip
    assert viewer.get("/lever-policies/kv").json()["lever"] == "lower_admission"
    assert operator.patch("/lever-policies/kv", {"enabled": True}).status_code == 403
    assert admin.delete("/lever-policies/kv").status_code == 200


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("detector", "nothing", "/detector"),
        ("pools", ["nowhere"], "/pools/nowhere"),
        ("max_an_hour", 0, "/max_an_hour"),
        ("min_confidence_permille", 1001, "/min_confidence_permille"),
        ("lever", "Not A Key", "/lever"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(admin: Rest, field: str, value: Any, path: str):
    answer = admin.post("/lever-policies", {**BODY, field: value})
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["problems"]] == [path]
