"""Row 5: short requests that wait behind long ones, and the route by size."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding, Fleet, Lengths
from controlplane.diagnosis.detectors import waiting_behind
from controlplane.diagnosis.detectors.head_of_line import HeadOfLine
from gateway.size_metrics import SIZES
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge, histogram

ENGINE: dict[str, Any] = {"engine": "e1", "pool": "chat"}
DETECTOR = HeadOfLine()


def sized(size: str, requests: float, tokens: float, ttft: float) -> list[Any]:
    """So many a second, of so many tokens each."""
    labels: dict[str, Any] = {"pool": "chat", "size": size, "gateway": "g1"}
    return [
        counter("headworks_gateway_sized_requests_total", requests, **labels),
        counter("headworks_gateway_sized_prompt_tokens_total", requests * tokens, **labels),
        counter("headworks_gateway_sized_ttft_seconds_total", requests * ttft, **labels),
    ]


def asked(tenant: str, tokens: float, *, missed: float = 0.0) -> list[Any]:
    labels: dict[str, Any] = {"pool": "chat", "tenant": tenant, "gateway": "g1"}
    return [
        counter("headworks_gateway_requests_total", 3.0, outcome="ok", reason="none", **labels),
        counter("headworks_gateway_prompt_tokens_total", tokens, **labels),
        counter("headworks_gateway_generation_tokens_total", tokens / 10, **labels),
        counter("headworks_gateway_slo_requests_total", 3.0 - missed, outcome="met", **labels),
        counter("headworks_gateway_slo_requests_total", missed, outcome="missed", **labels),
    ]


def mixed(short_ttft: float = 3.0, long_ttft: float = 5.0, queue: float = 4.0) -> list[Any]:
    """Seed 1, section 5: 500, 300 and 600 tokens behind 40,000."""
    return [
        *sized("under_1024", 2.0, 450, short_ttft),
        *sized("larger", 1.0, 40_000, long_ttft),
        *asked("acme", 40_000),
        gauge("headworks_gateway_queue_length", queue, pool="chat", gateway="g1"),
        gauge("headworks_engine_requests_waiting", 0, **ENGINE),
        gauge("headworks_engine_kv_cache_usage_ratio", 0.5, **ENGINE),
        *histogram("headworks_gateway_queue_seconds", {2.8: 3.0}, pool="chat", tenant="acme"),
    ]


def with_long_pool(**changes: Any) -> Fleet:
    # Half are short, a tenth are of 40,000 tokens.
    lengths = Lengths(3000, {100: 200, 500: 450, 800: 600, 900: 38_000, 990: 41_000}, {}, {})
    return helpers.fleet(
        [helpers.pool(lengths=lengths), helpers.pool("long", engines=("e2",), work="long")],
        tenants=[helpers.tenant(), helpers.tenant("globex")],
        routes=[helpers.route(**changes)],
    )


def found(series: list[Any], of: Fleet | None = None) -> list[Finding]:
    return helpers.judged(DETECTOR, series, of or with_long_pool())


def test_short_requests_that_wait_for_long_ones_are_found():
    (finding,) = found(mixed())
    assert finding.subject == "pool/chat"
    assert finding.confidence_permille >= 800
    evidence: dict[str, Any] = {part.name: part for part in finding.evidence}
    assert evidence["short_ttft"].value == pytest.approx(3.0)
    # A third of the seed's 2 s.
    assert evidence["short_ttft"].limit == pytest.approx(2 / 3)
    # 450 tokens at (5 - 3) s ÷ 39,550 tokens are 23 ms.
    assert evidence["times_alone"].value == pytest.approx(3 / (450 * 2 / 39_550))
    assert evidence["long_requests"].value == pytest.approx(1 / 3)


def test_its_sizes_are_those_that_gateways_count_by():
    assert waiting_behind.SIZES == SIZES


@pytest.mark.parametrize(
    "series",
    [
        # They wait, and not for long.
        mixed(short_ttft=0.3, long_ttft=2.3),
        # They take as long as reading takes.
        mixed(short_ttft=3.0, long_ttft=260.0),
        # Long ones are hardly any work.
        [*sized("under_1024", 50.0, 450, 3.0), *sized("larger", 0.1, 40_000, 5.0)],
        # Longer, but not so much that a cut would help.
        [*sized("under_256", 2.0, 200, 3.0), *sized("under_1024", 5.0, 850, 3.2), *asked("acme", 4000)],
        # Only short ones: nobody is in front of them that is long.
        [*sized("under_256", 5.0, 100, 3.0), *asked("acme", 500)],
    ],
)
def test_short_waits_long_reading_and_equal_requests_are_none(series: list[Any]):
    assert not found(series)


def test_one_tenants_long_work_is_a_noisy_neighbour():
    # All that acme sends is long: its mean is that of the long prompts.
    crowded = [*mixed(), *asked("acme", 3 * 40_000), *asked("globex", 200, missed=2.0)]
    assert not found([each for each in crowded if each not in asked("acme", 40_000)])
    # It sends short ones, too.
    assert found([*mixed(), *asked("globex", 200, missed=2.0)])


def test_an_overload_is_queue_debt():
    more: dict[str, Any] = {"pool": "chat", "tenant": "acme", "gateway": "g1"}
    refused = counter("headworks_gateway_requests_total", 3.0, outcome="refused", reason="queue_full", **more)
    assert not found([*mixed(queue=60.0), refused])


def test_streams_that_stand_still_are_prefill_that_stalls():
    gaps = histogram("headworks_engine_inter_token_latency_seconds", {0.01: 970.0, 0.5: 30.0}, **ENGINE)
    assert not found([*mixed(), *gaps])


def test_a_full_cache_is_another_row():
    full = [each for each in mixed() if "headworks_engine" not in each.labels["__name__"]]
    full += [
        gauge("headworks_engine_kv_cache_usage_ratio", 0.99, **ENGINE),
        gauge("headworks_engine_requests_waiting", 5, **ENGINE),
    ]
    assert not found(full)


def test_the_route_is_cut_where_the_lengths_say():
    (finding,) = found(mixed())
    (lever,) = finding.levers
    (edit,) = lever.edits
    assert (lever.key, edit.noun, edit.key, edit.create) == ("size_route", "routes", "size-chat", True)
    assert edit.changes["pools"] == {"long": 1000}
    assert edit.changes["fallbacks"] == {"chat": 0}
    assert edit.changes["order"] == 9
    # Between those of 600 tokens and those of 38,000.
    assert 600 < edit.changes["match"]["min_prompt_tokens"] <= 38_000
    assert edit.changes["match"]["models"] == ["llama"]


def test_the_route_asks_for_what_the_present_one_asks_for():
    of = with_long_pool(match={"tenants": ["acme"], "models": None, "max_prompt_tokens": None})
    (finding,) = found(mixed(), of)
    assert finding.levers[0].edits[0].changes["match"]["tenants"] == ["acme"]


def test_a_route_that_is_there_already_gets_the_new_edge():
    of = with_long_pool()
    there = helpers.route("size-chat", {"long": 1000}, order=9, match={"min_prompt_tokens": 32_000})
    of = helpers.fleet(of.pools.values(), routes=[*of.routes, there])
    (finding,) = found(mixed(), of)
    (edit,) = finding.levers[0].edits
    assert not edit.create


def test_without_another_pool_of_the_model_it_is_advice():
    lengths = with_long_pool().pools["chat"].lengths
    (finding,) = found(mixed(), helpers.fleet([helpers.pool(lengths=lengths)], routes=[helpers.route()]))
    (lever,) = finding.levers
    assert not lever.edits
    assert lever.advice


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    (finding,) = found(mixed())
    kit.dry_run(finding)


def judged(of: Fleet, short: float, long: float, requests: float = 50.0) -> list[Finding]:
    kinds = {"under_256": (100.0, short), "larger": (20_000.0, long)}

    def answer(of_kind: Any) -> list[Any]:
        return [({"pool": "chat", "size": size}, of_kind(*kind)) for size, kind in kinds.items()]

    answers = helpers.readings(
        DETECTOR,
        sized_requests=answer(lambda tokens, ttft: requests),
        sized_tokens=answer(lambda tokens, ttft: requests * tokens),
        sized_ttft=answer(lambda tokens, ttft: requests * ttft),
    )
    return list(DETECTOR.judge(answers, of))


seconds = st.floats(0, 100)


@given(wait=seconds, reading=st.floats(0.001, 10), more=seconds)
def test_a_longer_wait_of_all_never_clears_it(wait: float, reading: float, more: float):
    of = helpers.fleet()
    longer = judged(of, wait + more, wait + more + reading)
    assert len(longer) >= len(judged(of, wait, wait + reading))


@kit.few
@given(of=kit.fleets(), wait=st.floats(4, 1000))
def test_its_edits_hold_in_any_fleet(of: Fleet, wait: float):
    found = judged(of, wait, wait + 1)
    assert found
    kit.check(found, of)
