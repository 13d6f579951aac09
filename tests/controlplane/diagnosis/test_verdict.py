"""A lever has held only where its place was seen clear for a whole window after all ran it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.models import WATCHED_STATES, ProposalState
from controlplane.diagnosis.verdict import Seen, Verdict, Watched, verdict

BEGIN = datetime(2026, 3, 2, 10, tzinfo=UTC)
WINDOW, WINDOWS, STEP = timedelta(seconds=60), 3, timedelta(seconds=15)
APPLIED, VERIFYING, HELD, OFFERED = (
    ProposalState.APPLIED, ProposalState.VERIFYING, ProposalState.HELD, ProposalState.OFFERED_BACK
)  # fmt: skip


def _run(seen: list[Seen]) -> list[Verdict]:
    """One look a step; the verdicts up to the last, which ends it or the list does."""
    watched, verdicts = Watched(APPLIED, BEGIN, None, None), list[Verdict]()
    for place, each in enumerate(seen):
        decided = verdict(watched, each, BEGIN + place * STEP, WINDOW, WINDOWS)
        verdicts.append(decided)
        if decided.state not in WATCHED_STATES:
            break
        watched = Watched(decided.state, BEGIN, decided.verifying_since, decided.clear_since)
    return verdicts


def test_what_clears_for_a_window_has_held():
    verdicts = _run([Seen(True), Seen(True), *[Seen(False)] * 5])
    assert [each.state for each in verdicts] == [VERIFYING] * 6 + [HELD]


def test_what_stands_for_all_windows_is_offered_back():
    verdicts = _run([Seen(True)] * 20)
    assert verdicts[-1].state == OFFERED
    assert len(verdicts) == 1 + WINDOWS * WINDOW // STEP
    assert "still stands 180 s" in verdicts[-1].said


def test_a_relapse_begins_the_clear_window_anew():
    verdicts = _run([Seen(True), *[Seen(False)] * 4, Seen(True), *[Seen(False)] * 5])
    assert verdicts[-1].state == HELD
    assert len(verdicts) == 11


def test_what_is_clear_when_its_time_is_over_may_go_on_to_hold():
    verdicts = _run([*[Seen(True)] * 12, *[Seen(False)] * 5])
    assert verdicts[-1].state == HELD


def test_a_blind_detector_neither_holds_nor_fails_it():
    assert [each.state for each in _run([Seen(True), *[Seen(None)] * 60])][-1] == VERIFYING
    assert _run([Seen(True), *[Seen(False)] * 4, Seen(None), *[Seen(False)] * 4])[-1].state == VERIFYING


def test_it_waits_for_those_that_do_not_run_it_and_says_which():
    verdicts = _run([Seen(True, pending=["gateway/gw-1"]), Seen(True)])
    assert [each.state for each in verdicts] == [APPLIED, VERIFYING]
    assert verdicts[0].said == "not yet run by gateway/gw-1"
    assert verdicts[1].verifying_since == BEGIN + STEP


def test_a_refusal_and_an_act_that_failed_offer_it_back_at_once():
    assert _run([Seen(True, refusing=["gateway/gw-1"])])[-1].said == "refused by gateway/gw-1"
    assert _run([Seen(True, failed_acts=["restart of e1 failed: exit 1"])])[-1].state == OFFERED


def test_targets_that_never_run_it_end_the_waiting():
    verdicts = _run([Seen(True, pending=["gateway/gw-1"])] * 30)
    assert (verdicts[-1].state, len(verdicts)) == (OFFERED, 13)


def test_an_act_that_goes_on_is_waited_for():
    verdicts = _run([Seen(True, open_acts=["restart of e1"])] * 30)
    assert (verdicts[-1].state, verdicts[-1].said) == (APPLIED, "waits for restart of e1")


def test_engines_that_take_it_at_their_next_start_are_waited_for_however_long():
    verdicts = _run([Seen(True, unstarted=["engine e1 to start with max-num-seqs"])] * 60)
    assert (verdicts[-1].state, verdicts[-1].said) == (APPLIED, "waits for engine e1 to start with max-num-seqs")


@given(st.lists(st.sampled_from([True, False, None]), max_size=60))
def test_nothing_holds_without_a_window_of_seeing_it_clear(found: list[bool | None]):
    verdicts = _run([Seen(each) for each in found])
    looks = found[: len(verdicts)]
    rounds = WINDOW // STEP
    if verdicts and verdicts[-1].state == HELD:
        assert looks[-rounds - 1 :] == [False] * (rounds + 1)
    if verdicts and verdicts[-1].state == OFFERED:
        assert looks[-1] is True
        assert len(looks) > WINDOWS * rounds
