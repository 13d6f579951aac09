"""Fan-out: what a request of a user sets off, by the seed's examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.planning.fan_out import Call, fan_out, requests_per_second
from policy.planning.speed import Rates

RAG = [
    Call("rewrite", 1000, 200, 50, 0, "llm"),
    Call("embed", 1000, 60, 0, 0, "embedder"),
    Call("rerank", 1000, 4000, 0, 0, "embedder"),
    Call("generate", 1000, 5000, 400, 300, "llm"),
]
AGENT = [Call("step", 10_000, 6000, 300, 800, "llm")]
RATES = {"llm": Rates(10_000, 1000), "embedder": Rates(100_000, 1)}


def test_the_seeds_question_is_four_calls_of_two_models() -> None:
    found = fan_out(1.0, RAG, RATES)
    assert found.calls_per_request == 4
    assert [each.demand.model for each in found.models] == ["llm", "embedder"]
    assert found.models[0].demand.calls_per_second == 2


def test_5000_requests_a_day_are_20000_calls_and_with_an_agent_50000() -> None:
    a_second = 5000 / 86_400
    assert fan_out(a_second, RAG, {}).calls_per_request * 5000 == 20_000
    assert fan_out(a_second, AGENT, {}).calls_per_request * 5000 == 50_000


def test_prefill_and_decode_are_counted_apart() -> None:
    found = fan_out(2.0, RAG, RATES, load_permille=800)
    generate = found.calls[3]
    # A cache spares 30 % of the reading.
    assert (generate.prefill_tokens_per_second, generate.decode_tokens_per_second) == (7000, 800)
    assert generate.prefill_gpus == pytest.approx(7000 / 10_000 / 0.8)
    assert generate.decode_gpus == pytest.approx(800 / 1000 / 0.8)
    llm = found.models[0]
    assert llm.demand.prefill_tokens_per_second == 7400
    assert llm.demand.decode_tokens_per_second == 900
    # (0.74 + 0.9) ÷ 0.8 = 2.05.
    assert llm.gpus == 3
    embedder = found.models[1]
    assert (embedder.demand.decode_gpus, embedder.gpus) == (0, 1)


def test_without_a_rate_there_are_tokens_and_no_gpus() -> None:
    found = fan_out(1.0, RAG, {"llm": RATES["llm"]})
    assert found.models[1].gpus is None
    assert found.models[1].demand.prefill_tokens_per_second == 4060


def test_users_become_requests_of_the_busiest_hour() -> None:
    assert requests_per_second(3600, 2, 1500) == 3


def test_what_is_whole_on_paper_needs_no_gpu_more() -> None:
    assert fan_out(0.1 * 3, [Call("a", 1000, 0, 1000, 0, "llm")], {"llm": Rates(1, 1000)}, 100).models[0].gpus == 3


@given(st.floats(0, 1e6), st.integers(0, 100_000), st.integers(0, 1000))
def test_more_calls_never_need_fewer(requests: float, calls: int, cached: int) -> None:
    one = fan_out(requests, [Call("a", calls, 1000, 100, cached, "llm")], RATES).models[0].gpus
    more = fan_out(requests, [Call("a", calls + 1000, 1000, 100, cached, "llm")], RATES).models[0].gpus
    assert one is not None
    assert more is not None
    assert one <= more
