"""Numbers that levers are made of: caps, contexts, confidence, what an engine was started with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Lengths
from controlplane.diagnosis.detectors.capacity import Carried, carried, fitting_cap
from controlplane.diagnosis.detectors.confidence import combined, lowered
from controlplane.diagnosis.detectors.measured import distribution, prompts_of
from controlplane.diagnosis.detectors.restarting import desired, started_with
from tests.controlplane.diagnosis import helpers

BUDGET = Carried({"e1": 20, "e2": 10}, 1000, 60_000)


@pytest.mark.parametrize(
    ("now", "running", "use", "budget", "cap"),
    [
        # As many as fill nine tenths, or as the lengths say: the fewer.
        (None, 100, 1.0, None, 90),
        (None, 100, 1.0, BUDGET, 30),
        (None, 20, 0.96, BUDGET, 18),
        # What fills it less than it may is not lowered for that.
        (None, 20, 0.5, None, 20),
        # A cap that did not do is lowered further.
        (8, 20, 0.96, BUDGET, 7),
        (1, 20, 0.96, BUDGET, None),
        # Nothing is known.
        (None, 0, 0.96, None, None),
    ],
)
def test_a_cap_is_what_fits(now: int | None, running: float, use: float, budget: Carried | None, cap: int | None):
    assert fitting_cap(now, running, use, budget) == cap


@given(
    now=st.none() | st.integers(1, 1000),
    running=st.floats(0, 1e6),
    use=st.floats(0, 1),
    budget=st.sampled_from([None, BUDGET]),
)
def test_a_cap_is_lower_than_the_present_one_and_never_nothing(
    now: int | None, running: float, use: float, budget: Carried | None
):
    cap = fitting_cap(now, running, use, budget)
    assert cap is None or (cap >= 1 and (now is None or cap < now))


def test_a_pool_carries_what_each_of_its_engines_does():
    engines = [helpers.engine("e1"), helpers.engine("e2", kv_capacity_tokens=50_000)]
    facts = helpers.pool(engines=("e1", "e2"), lengths=helpers.lengths())
    found = carried(facts, helpers.fleet([facts], engines=engines))
    assert found is not None
    assert found.capacity_tokens == 150_000
    assert found.sequences["e2"] < found.sequences["e1"] == found.together - found.sequences["e2"]
    assert found.of_each == found.sequences["e2"]


@pytest.mark.parametrize(
    ("lengths", "capacity"),
    [(None, 100_000), (helpers.lengths(counted=99), 100_000), (helpers.lengths(), None), (helpers.lengths(), 0)],
)
def test_without_lengths_or_capacity_nothing_is_derived(lengths: Lengths | None, capacity: int | None):
    facts = helpers.pool(lengths=lengths)
    fleet = helpers.fleet([facts], engines=[helpers.engine(kv_capacity_tokens=capacity)])
    assert carried(facts, fleet) is None


def test_quantiles_that_are_none_are_no_distribution():
    assert distribution({}) is None
    assert distribution({500: 100}) is None
    assert distribution({500: 100, 950: 50}) is None
    assert prompts_of(helpers.pool()) is None
    assert sum((distribution({500: 100, 950: 400}) or {}).values()) == 1000


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6))
def test_more_signals_are_never_less_sure(signals: list[int]):
    assert combined(*signals[:-1]) <= combined(*signals) <= 990
    assert lowered(combined(*signals), 500) <= combined(*signals)


def test_two_that_err_once_in_two_err_together_once_in_four():
    assert combined(500, 500) == 750


def test_desired_arguments_are_added_to_what_there_is():
    facts = helpers.pool(engine_arguments={"tp": 2, "max-num-seqs": 64})
    (edit,) = desired(facts, {"max-num-seqs": 32}, without=("tp",))
    assert edit.changes == {"engine_arguments": {"max-num-seqs": 32}}
    assert desired(facts, {"max-num-seqs": 64}) == ()
    full = helpers.pool(engine_arguments={f"argument-{number}": 1 for number in range(64)})
    assert desired(full, {"max-num-seqs": 64}) == ()


def test_what_engines_say_goes_before_what_is_desired():
    facts = helpers.pool(engine_arguments={"max-num-seqs": 512})
    assert started_with(facts, helpers.fleet([facts]), "max-num-seqs") == 512
    told = helpers.fleet([facts], engines=[helpers.engine(arguments={"max_num_seqs": "128"})])
    assert started_with(facts, told, "max-num-seqs") == 128
    assert started_with(facts, told, "max-model-len") is None
