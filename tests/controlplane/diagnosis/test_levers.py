"""Levers over REST: shown as a diff, applied in one change, verified, taken back, dismissed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.configs.heads import Heads
from controlplane.configs.publisher import publish
from controlplane.core.fields import epoch_ms
from controlplane.core.models import AuditEntry, Target
from controlplane.diagnosis.detector import Command, Edit, Lever
from controlplane.diagnosis.models import Finding, Proposal
from controlplane.fleet.models import Act, Engine, Node, Pool
from controlplane.routing.models import Route
from tests.controlplane.configs.conftest import answered, newest, target_of
from tests.controlplane.configs.staging import acknowledge
from tests.controlplane.conftest import Rest
from tests.controlplane.diagnosis.conftest import LOWER, WINDOW, Sure, finding

__all__ = ["answered", "newest", "target_of"]
Round = Callable[..., datetime]
SPLIT = Lever(
    "split",
    "Give long prompts a pool of their own",
    "measured",
    edits=(
        Edit("pools", "long", {"model": "llama", "work": "long", "queue_cap": 7}, create=True),
        Edit(
            "routes", "long", {"order": 1, "match": {"min_prompt_tokens": 4000}, "pools": {"chat": 1000}}, create=True
        ),
        Edit("pools", "chat", {"breaker": {"window_ms": 5000}, "queue_cap": 9}),
    ),
)
FILES = {"manifest": "a" * 64, "folder": "/models/llama"}


@pytest.fixture
def found(rounds: Round, detector: Sure) -> Callable[..., str]:
    """Let a finding offer these levers; the path of the first."""

    def find(*levers: Lever) -> str:
        detector.finds = [finding(levers=levers or (LOWER,))]
        rounds()
        row = Finding.objects.get(state="open")
        return f"/diagnosis/findings/{row.pk}/levers/{(levers or (LOWER,))[0].key}"

    return find


def test_a_dry_run_answers_with_the_diff_and_keeps_nothing(found: Any, operator: Rest):
    lever = found()
    answer = operator.post(f"{lever}/apply?dry_run=true").json()
    assert answer["patch"] == {"pools": {"chat": {"kv_admit_permille": 800}}}
    assert answer["item"]["state"] == "applied"
    assert Pool.objects.get().kv_admit_permille == 900
    assert operator.get(lever).json()["state"] == "proposed"


def test_it_is_one_change_with_reason_and_what_it_replaced(found: Any, operator: Rest):
    lever = found(SPLIT)
    answer = operator.post(f"{lever}/apply?reason=long+prompts").json()
    entries = AuditEntry.objects.filter(change_id=answer["change_id"])
    assert sorted(entries.values_list("noun", flat=True)) == ["lever", "pool", "pool", "route"]
    assert set(entries.values_list("reason", flat=True)) == {"long prompts"}
    row = operator.get(lever).json()
    assert row["replaced"][2] == {
        "noun": "pools",
        "key": "chat",
        "create": False,
        "before": {"breaker": {"window_ms": 30_000}, "queue_cap": 64},
        "after": {"breaker": {"window_ms": 5000}, "queue_cap": 9},
    }
    assert (row["state"], row["reason"], row["change_id"]) == ("applied", "long prompts", answer["change_id"])
    pool = Pool.objects.get(name="chat")
    assert (pool.breaker_window_ms, pool.breaker_cooldown_ms, pool.queue_cap) == (5000, 10_000, 9)


def test_taking_back_puts_back_exactly_what_it_wrote(found: Any, operator: Rest):
    lever = found(SPLIT)
    before = operator.get("/pools/chat").json()
    operator.post(f"{lever}/apply")
    # Of another field than it wrote.
    operator.patch("/pools/chat", {"queue_ttl_ms": 1234})
    answer = operator.post(f"{lever}/revert?reason=no+help")
    assert answer.status_code == 200, answer.content
    assert operator.get("/pools/chat").json() == {**before, "queue_ttl_ms": 1234}
    assert not Pool.objects.filter(name="long").exists()
    assert not Route.objects.exists()
    row = operator.get(lever).json()
    assert row["state"] == "reverted"
    assert "no help" in row["said"]


def test_what_somebody_changed_since_is_not_taken_back_and_they_are_named(found: Any, operator: Rest, admin: Rest):
    lever = found(SPLIT)
    operator.post(f"{lever}/apply")
    admin.patch("/pools/chat", {"queue_cap": 33})
    answer = operator.post(f"{lever}/revert")
    assert (answer.status_code, answer.json()["code"]) == (409, "changed_since")
    (problem,) = answer.json()["problems"]
    assert problem["path"] == "/pools/chat/queue_cap"
    entry = AuditEntry.objects.filter(noun="pool", key="chat").order_by("-id")[0]
    assert problem["message"].startswith(f"{entry.actor} at 20")
    assert "made it 33, and the lever had left 9" in problem["message"]
    assert Pool.objects.get(name="chat").breaker_window_ms == 5000
    (changed,) = operator.get(lever).json()["changed_since"]
    assert (changed["field"], changed["by"], changed["now"]) == ("queue_cap", entry.actor, 33)
    admin.patch("/pools/chat", {"queue_cap": 9})
    assert operator.post(f"{lever}/revert").status_code == 200


def test_a_row_that_it_made_and_somebody_deleted_is_named(found: Any, operator: Rest, admin: Rest):
    lever = found(SPLIT)
    operator.post(f"{lever}/apply")
    admin.delete("/routes/long")
    (problem,) = operator.post(f"{lever}/revert").json()["problems"]
    assert problem["path"].startswith("/routes/long")
    assert "'deleted'" in problem["message"]


def test_refusals_say_at_which_edit_they_are(found: Any, operator: Rest):
    wrong = Lever("wrong", "Wrong", "", edits=(*LOWER.edits, Edit("pools", "chat", {"queue_cap": -1})))
    answer = operator.post(f"{found(wrong)}/apply").json()
    assert answer["problems"][0]["path"] == "/edits/1/queue_cap"
    assert Pool.objects.get().kv_admit_permille == 900
    gone = Lever("gone", "Gone", "", edits=(Edit("pools", "nowhere", {"queue_cap": 1}),))
    assert operator.post(f"{found(gone)}/apply").status_code == 404


def test_commands_are_asked_as_acts_and_cordons_are_calls(found: Any, operator: Rest, target_of: Any):
    target_of("node", "n1")
    lever = Lever(
        "drain", "Drain n1", "XID 79", edits=(Edit("nodes", "n1", {"cordoned": True}),),
        commands=(Command("engine/e1", "drain", {"limit_seconds": 30}),),
    )  # fmt: skip
    path = found(lever)
    assert operator.post(f"{path}/apply").status_code == 200
    act = Act.objects.get()
    assert (act.action, act.arguments, act.engine and act.engine.name) == ("drain", {"limit_seconds": 30}, "e1")
    assert Node.objects.get().cordoned
    assert operator.get(path).json()["acts"] == [act.act_id]
    assert operator.post(f"{path}/revert").status_code == 200
    assert not Node.objects.get().cordoned
    assert Act.objects.get().state == "cancelled"


def test_advice_alone_cannot_be_applied(found: Any, operator: Rest):
    answer = operator.post(f"{found(Lever('advice', 'Add engines', 'measured', advice='Two more'))}/apply")
    assert (answer.status_code, answer.json()["code"]) == (409, "advice_alone")


def test_it_is_applied_once(found: Any, operator: Rest):
    lever = found()
    assert operator.post(f"{lever}/apply").status_code == 200
    assert operator.post(f"{lever}/apply").json()["code"] == "wrong_state"


def test_one_applies_what_one_saw(found: Any, detector: Sure, rounds: Round, operator: Rest):
    lever = found()
    seen = operator.get(lever)["ETag"]
    detector.finds = [finding(levers=[replace(LOWER, edits=(Edit("pools", "chat", {"kv_admit_permille": 500}),))])]
    rounds()
    assert operator.post(f"{lever}/apply", **{"If-Match": seen}).status_code == 412
    assert operator.post(f"{lever}/apply", **{"If-Match": operator.get(lever)["ETag"]}).status_code == 200


def test_models_are_changed_by_admins(found: Any, operator: Rest, admin: Rest):
    lever = found(Lever("clamp", "Clamp", "", edits=(Edit("models", "llama", {"default_max_tokens": 256}),)))
    answer = operator.post(f"{lever}/apply")
    assert answer.status_code == 403
    assert "changes models, which needs the role admin" in answer.json()["detail"]
    assert admin.post(f"{lever}/apply").status_code == 200


def test_what_is_dismissed_is_not_offered_again_while_the_finding_stands(
    found: Any, detector: Sure, rounds: Round, operator: Rest
):
    lever = found()
    assert operator.post(f"{lever}/dismiss?reason=known").json()["item"]["state"] == "dismissed"
    rounds(2)
    assert operator.get(lever).json()["state"] == "dismissed"
    detector.finds = []
    rounds()
    assert operator.get(found()).json()["state"] == "proposed"


@pytest.fixture
def converge(target_of: Any, newest: Callable[[], Heads]) -> Callable[[], None]:
    """A gateway applies the newest revision."""
    gateway = target_of("gateway", "gw-1")

    def go() -> None:
        publish()
        acknowledge(gateway, newest())
        Target.objects.update(last_seen_at=Proposal.objects.get().applied_at)

    return go


def test_it_holds_once_all_run_it_and_its_finding_is_gone_for_a_window(
    found: Any, detector: Sure, rounds: Round, operator: Rest, converge: Callable[[], None]
):
    lever = found()
    operator.post(f"{lever}/apply")
    rounds()
    assert operator.get(lever).json()["said"] == "not yet run by anyone: it is not published yet"
    publish()
    rounds()
    assert operator.get(lever).json()["said"] == "not yet run by gateway/gw-1"
    converge()
    verifying_since = rounds()
    assert Proposal.objects.get().verifying_since == verifying_since
    detector.finds = []
    rounds()
    rounds(after=WINDOW / 2)
    assert operator.get(lever).json()["state"] == "verifying"
    rounds(after=WINDOW / 2)
    assert operator.get(lever).json()["state"] == "held"


def test_one_that_does_not_help_is_offered_back_and_one_call_takes_it_back(
    found: Any, rounds: Round, operator: Rest, converge: Callable[[], None]
):
    lever = found()
    operator.post(f"{lever}/apply")
    converge()
    rounds()
    rounds(4, after=WINDOW)
    row = operator.get(lever).json()
    assert (row["state"], row["changed_since"]) == ("offered_back", [])
    assert operator.post(f"{lever}/revert").json()["patch"] == {"pools": {"chat": {"kv_admit_permille": 900}}}
    rounds()
    # Offered again, since it stands; what became of the first stays on record.
    states = [row["state"] for row in operator.get("/diagnosis/levers").json()["items"]]
    assert states == ["proposed", "reverted"]


def test_an_offer_back_that_is_dismissed_leaves_the_change(
    found: Any, rounds: Round, operator: Rest, converge: Callable[[], None]
):
    lever = found()
    operator.post(f"{lever}/apply")
    converge()
    rounds()
    rounds(4, after=WINDOW)
    assert operator.post(f"{lever}/dismiss").status_code == 200
    assert Pool.objects.get().kv_admit_permille == 800


def test_an_act_that_fails_says_so(found: Any, rounds: Round, operator: Rest, target_of: Any):
    target_of("node", "n1")
    path = found(Lever("restart", "Restart", "", commands=(Command("engine/e1", "restart"),)))
    operator.post(f"{path}/apply")
    rounds()
    assert operator.get(path).json()["said"] == "waits for restart of e1"
    Act.objects.update(state="failed", result_reason="not_serving", detail="exit 1")
    rounds()
    row = operator.get(path).json()
    assert (row["state"], row["said"]) == ("failed", "restart of e1 failed: not_serving: exit 1")
    assert operator.post(f"{path}/revert").status_code == 409


def test_arguments_of_engines_are_judged_once_engines_have_started_with_them(
    found: Any, rounds: Round, operator: Rest, converge: Callable[[], None]
):
    Pool.objects.update(engine_arguments={"dtype": "auto", "max-num-seqs": 256})
    Engine.objects.update(facts={"arguments": {"max_num_seqs": "256", "dtype": "half"}})
    arguments = {"dtype": "auto", "max-num-seqs": 64}
    path = found(Lever("fewer", "Fewer", "", edits=(Edit("pools", "chat", {"engine_arguments": arguments}),)))
    operator.post(f"{path}/apply")
    converge()
    rounds(9, after=WINDOW)
    row = operator.get(path).json()
    assert (row["state"], row["said"]) == ("applied", "waits for engine e1 to start with max-num-seqs")
    Engine.objects.update(facts={"arguments": {"max_num_seqs": "64"}})
    rounds()
    assert operator.get(path).json()["state"] == "verifying"


def test_files_are_judged_once_engines_have_started_from_them(
    found: Any, rounds: Round, operator: Rest, converge: Callable[[], None], target_of: Any
):
    target_of("node", "n1")
    Engine.objects.update(facts={"started_at_ms": 1_000})
    path = found(Lever("files", "Files", "", commands=(Command("node/n1", "fetch_model", FILES),)))
    assert operator.post(f"{path}/apply").status_code == 200
    converge()
    # What the act brought is done; its agent is not what is waited for.
    Target.objects.filter(kind="node").update(last_seen_at=timezone.now() - timedelta(days=1))
    Act.objects.update(state="done")
    rounds(9, after=WINDOW)
    row = operator.get(path).json()
    assert (row["state"], row["said"]) == ("applied", "waits for engine e1 to start from its files")
    Engine.objects.update(facts={"started_at_ms": epoch_ms(Act.objects.get().state_at)})
    rounds()
    assert operator.get(path).json()["state"] == "verifying"


def test_a_second_lever_of_a_finding_that_is_verified_is_warned_of(found: Any, operator: Rest):
    lever = found(LOWER, replace(LOWER, key="other", edits=(Edit("pools", "chat", {"queue_cap": 5}),)))
    operator.post(f"{lever}/apply")
    answer = operator.post(f"{lever.replace('lower_admission', 'other')}/apply").json()
    assert [warning["rule"] for warning in answer["warnings"]] == ["verifying"]


def test_what_there_is_not_is_named(found: Any, operator: Rest):
    lever = found()
    answer = operator.post(f"{lever}x/apply").json()
    assert answer["detail"].endswith("has no lever 'lower_admissionx'; it has lower_admission")
    assert operator.post("/diagnosis/findings/999999/levers/x/apply").status_code == 404
