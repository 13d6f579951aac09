"""Breakers of engines and of pools: what opens them, who may pass, and what other gateways are told and tell."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.pools import judge_pool
from gateway.pools.breakers import Kind
from gateway.refusals import Refused
from policy.breaker import Outcome, State
from tests.gateway.fleet import MODEL
from tests.gateway.pools.asking import Bench, turns

QUICK: dict[str, Any] = {"minimum_requests": 4, "error_permille": 400, "cooldown_ms": 1_000, "half_open_probes": 1}
FOUR_FAIL: list[Outcome] = ["failure"] * 4
LONG_TTL: dict[str, Any] = {"pools__main__queue_ttl_ms": 3_600_000}
FORCED: dict[str, Any] = {
    "subject": "e0",
    "subject_kind": "engine",
    "owner": "o",
    "reason": "r",
    "expires_at_ms": 2**50,
}


def opened(bench: Bench) -> dict[str, State]:
    """The breakers that are not closed."""
    found: dict[str, State] = {engine.name: state for _, engine, state in bench.pools.engines() if state != "closed"}
    return found | {pool.name: pool.state for pool in bench.pools.moments() if pool.state != "closed"}


async def ask(bench: Bench, *outcomes: Outcome, retry: bool = False) -> None:
    """Requests one after another, whose first attempts end so; with `retry` another engine serves them after all."""
    for outcome in outcomes:
        x = bench.asked(10)
        first = await bench.place_for(x)
        first.end(outcome, bench.clock.now_ms())
        if retry and outcome == "failure":
            x.placement = bench.pools.place_again(x, avoid=first.state.name)
            assert x.placement.state is not first.state
            x.placement.end("success", bench.clock.now_ms())
        judge_pool(x, "ok", "none")


async def refusal(bench: Bench) -> str:
    with pytest.raises(Refused) as refused:
        await bench.place(10)
    return refused.value.reason


async def test_an_engines_failures_open_its_breaker_and_its_pools():
    bench = Bench(pools__main__breaker=QUICK)
    await ask(bench, *FOUR_FAIL)
    assert opened(bench) == {"e0": "open", "main": "open"}
    assert await refusal(bench) == "breaker_open"
    bench.clock.monotonic_ms += 1_000
    await ask(bench, "success")
    assert opened(bench) == {}


async def test_what_another_engine_served_after_all_is_no_failure_of_the_pool():
    bench = Bench(2, pools__main__breaker=QUICK)
    loaded = (await bench.place(50)).state.name
    for _ in range(4):
        await ask(bench, "failure", retry=True)
    assert opened(bench) == {"e1" if loaded == "e0" else "e0": "open"}
    assert (await bench.place(10)).state.name == loaded


async def test_engines_that_fail_by_turns_open_the_pools_breaker_before_their_own():
    bench = Bench(4, pools__main__breaker=QUICK)
    await ask(bench, *FOUR_FAIL)
    assert opened(bench) == {"main": "open"}
    assert await refusal(bench) == "breaker_open"


async def test_late_first_tokens_open_breakers_by_their_own_share():
    bench = Bench(pools__main__breaker={**QUICK, "timeout_permille": 500, "timeout_ms": 100})
    await ask(bench, "timeout", "timeout", "success", "success")
    assert opened(bench) == {}
    x = bench.asked(10)
    late = await bench.place_for(x)
    # Told while the request goes on; how it ends then counts no more.
    late.tell("timeout", bench.clock.now_ms())
    assert opened(bench) == {"e0": "open", "main": "open"}
    late.end("success", bench.clock.now_ms())
    judge_pool(x, "ok", "none")
    assert opened(bench) == {"e0": "open", "main": "open"}
    assert bench.pools.held("e0") == (0, 0)


async def test_a_probe_whose_client_left_is_given_again():
    bench = Bench(pools__main__breaker=QUICK)
    await ask(bench, *FOUR_FAIL)
    bench.clock.monotonic_ms += 1_000
    await ask(bench, "ignored", "ignored", "ignored")
    assert opened(bench) == {"e0": "half_open", "main": "half_open"}
    await ask(bench, "success")
    assert opened(bench) == {}


async def test_a_second_try_of_one_request_takes_one_probe_of_the_pool():
    bench = Bench(2, pools__main__breaker={**QUICK, "half_open_probes": 2})
    bench.pools.apply_remote("pool", "main", "open", bench.clock.unix_ms() + 500)
    bench.clock.monotonic_ms += 500
    await ask(bench, "failure", retry=True)
    assert opened(bench) == {"main": "half_open"}
    await ask(bench, "success")
    assert opened(bench) == {}


async def test_a_second_try_in_another_pool_is_a_probe_of_that_pool():
    spare = {"model": MODEL, "kv_admit_permille": 1000, "breaker": QUICK}
    bench = Bench(2, pools__spare=spare, engines__e1__pool="spare", routes__all__fallbacks={"spare": {"order": 1}})
    bench.pools.apply_remote("pool", "spare", "open", bench.clock.unix_ms() + 500)
    bench.clock.monotonic_ms += 500
    x = bench.asked(10, pools=("main", "spare"))
    (await bench.place_for(x)).end("failure", bench.clock.now_ms())
    x.placement = bench.pools.place_again(x, avoid="e0")
    with pytest.raises(Refused):
        await bench.place(10, pools=("spare",))
    x.placement.end("success", bench.clock.now_ms())
    judge_pool(x, "ok", "none")
    assert opened(bench) == {}


async def test_a_stream_that_has_begun_is_a_probe_that_went_well():
    """It may go on for minutes; until its end nothing else would be let in."""
    bench = Bench(pools__main__breaker=QUICK, **LONG_TTL)
    await ask(bench, *FOUR_FAIL)
    bench.clock.monotonic_ms += 1_000
    probe = await bench.place(10)
    assert await refusal(bench) == "breaker_open"
    probe.first_token(bench.clock.now_ms())
    assert opened(bench) == {}
    await bench.place(10)
    bench.end(probe, "failure")
    assert opened(bench) == {}


async def test_an_engine_whose_probe_begins_to_answer_serves_those_that_wait_for_others():
    bench = Bench(2, pools__main__breaker=QUICK, **LONG_TTL)
    bench.pools.apply_remote("engine", "e1", "open", bench.clock.unix_ms() + 500)
    await bench.place(100)
    bench.clock.monotonic_ms += 500
    probe = await bench.place(10)
    assert probe.state.name == "e1"
    task = await bench.waits(50)
    probe.first_token(bench.clock.now_ms())
    await turns()
    assert task.result().state.name == "e1"


async def test_those_that_wait_learn_at_once_that_a_late_first_token_opened_a_breaker():
    """Also where it was the engine's alone."""
    bench = Bench(2, pools__main__breaker=QUICK, engines__e0__cordoned=True, **LONG_TTL)
    for _ in range(4):
        bench.end(await bench.place(1))
    bench.configure(engines__e0__cordoned=False, engines__e1__cordoned=True)
    late = [await bench.place(25) for _ in range(4)]
    task = await bench.waits(100)
    for placement in late:
        placement.tell("timeout", bench.clock.now_ms())
    assert opened(bench) == {"e0": "open"}
    await turns()
    assert task.done()
    with pytest.raises(Refused):
        task.result()


async def test_a_second_attempt_that_is_not_made_leaves_the_first_ones_failure():
    bench = Bench(2, pools__main__breaker={**QUICK, "minimum_requests": 2})
    x = bench.asked(10)
    (await bench.place_for(x)).end("failure", bench.clock.now_ms())
    # A stage that asks a small model first, as a cascade does, begins anew.
    bench.end(await bench.place_for(x))
    await ask(bench, "failure")
    assert opened(bench)["main"] == "open"


@pytest.mark.parametrize("subject", ["engine", "pool"])
async def test_who_holds_a_breaker_closed_or_open_goes_before_both(subject: str):
    bench = Bench(pools__main__breaker=QUICK)
    await ask(bench, *FOUR_FAIL)
    override: dict[str, Any] = {**FORCED, "subject_kind": subject, "subject": "e0" if subject == "engine" else "main"}
    bench.configure(overrides__x={**override, "state": "closed"})
    await ask(bench, "failure", "success")
    bench.configure(overrides__y={**override, "state": "open"})
    assert await refusal(bench) == "breaker_open"
    assert opened(bench)["e0"] == "open"
    assert not bench.pools.stands_well("e0")


async def test_those_that_wait_learn_at_once_that_a_breaker_opened():
    bench = Bench(pools__main__breaker=QUICK, **LONG_TTL)
    x = bench.asked(100)
    running = await bench.place_for(x)
    task = await bench.waits(100)
    bench.pools.apply_remote("engine", "e0", "open", bench.clock.unix_ms() + 500)
    with pytest.raises(Refused) as refused:
        await asyncio.wait_for(task, 5)
    assert refused.value.reason == "breaker_open"
    bench.end(running)


async def test_an_engine_that_dies_sends_those_that_wait_for_it_to_a_fallback():
    spare = {"model": MODEL, "kv_admit_permille": 1000}
    bench = Bench(2, pools__main__breaker=QUICK, pools__spare=spare, engines__e1__pool="spare", **LONG_TTL)
    bench.configure(routes__all__fallbacks={"spare": {"order": 1}})
    running = [await bench.place(20) for _ in range(5)]
    taken = await bench.place(100, pools=("spare",))
    tasks = [await bench.waits(100, pools=("main", "spare")) for _ in range(3)]
    for placement in running:
        bench.end(placement, "failure")
    await turns()
    assert [pool.queue_length for pool in bench.pools.moments()] == [0, 3]
    bench.end(taken)
    await turns()
    assert [task.done() for task in tasks] == [True, False, False]
    for task in tasks:
        task.cancel()


async def test_others_are_told_what_was_seen_here_and_not_what_they_told():
    bench = Bench(pools__main__breaker=QUICK)
    told: list[tuple[Kind, str, State, int]] = []
    bench.pools.on_breaker_change = lambda *change: told.append(change)
    bench.pools.apply_remote("engine", "e0", "open", bench.clock.unix_ms() + 500)
    bench.pools.apply_remote("engine", "gone", "open", bench.clock.unix_ms() + 500)
    bench.pools.apply_remote("pool", "gone", "closed", 0)
    assert opened(bench) == {"e0": "open"}
    bench.clock.monotonic_ms += 500
    bench.pools.apply_remote("engine", "e0", "closed", 0)
    assert (opened(bench), told) == ({}, [])
    await ask(bench, *FOUR_FAIL)
    until = bench.clock.unix_ms() + 1_000
    assert told == [("engine", "e0", "open", until), ("pool", "main", "open", until)]
    bench.clock.monotonic_ms += 1_000
    await ask(bench, "success")
    assert [change[:3] for change in told[2:]] == [("engine", "e0", "closed"), ("pool", "main", "closed")]


async def test_a_retry_takes_no_place_on_the_engine_that_failed_and_waits_for_none():
    bench = Bench()
    x = bench.asked(10)
    first = await bench.place_for(x)
    first.end("failure", bench.clock.now_ms())
    with pytest.raises(Refused):
        bench.pools.place_again(x, avoid="e0")
    judge_pool(x, "failed", "engine_error")
    assert bench.pools.held("e0") == (0, 0)
