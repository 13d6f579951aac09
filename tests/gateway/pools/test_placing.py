"""Where a request goes: which pool, which engine, and what it is told that gets no place."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.pools import EngineState
from gateway.pools.breakers import NamedBreaker
from gateway.refusals import Refused
from policy.kv_ledger import EngineLook
from tests.gateway.fleet import MODEL
from tests.gateway.pools.asking import Bench
from wire.snapshot import BreakerThresholds, Engine

NO_QUEUE: dict[str, Any] = {"pools__main__queue_cap": 0}
SPARE: dict[str, Any] = {
    "pools__spare": {"model": MODEL, "kv_admit_permille": 1000},
    "engines__e1__pool": "spare",
    "routes__all__fallbacks": {"spare": {"order": 1}},
}
BOTH = ("main", "spare")


async def refusal(bench: Bench, needs: int, **other: Any) -> str:
    with pytest.raises(Refused) as refused:
        await bench.place(needs, **other)
    return refused.value.reason


def look(used: int, capacity: int | None = 100, running: int = 1) -> EngineLook:
    return EngineLook(0, running, 0, used, capacity, 0, 0)


async def test_the_least_loaded_by_share_of_its_capacity_takes_it():
    bench = Bench(2, engines__e1__kv_capacity_tokens=1_000)
    assert (await bench.place(50)).state.name == "e0"
    assert (await bench.place(50)).state.name == "e1"
    # 50 of 1,000 are less than 50 of 100.
    assert (await bench.place(50)).state.name == "e1"


async def test_equal_ones_take_turns():
    bench = Bench(3)
    names = [(await bench.place(10)).state.name for _ in range(6)]
    assert sorted(names[:3]) == sorted(names[3:]) == ["e0", "e1", "e2"]


async def test_load_is_corrected_by_what_engines_say_themselves():
    bench = Bench(2)
    bench.pages.looks = {"e0": look(used=60), "e1": look(used=10)}
    assert [(await bench.place(10)).state.name for _ in range(3)] == ["e1", "e1", "e1"]


async def test_room_is_what_others_leave_of_the_measured_capacity():
    bench = Bench(1, **NO_QUEUE)
    bench.pages.looks = {"e0": look(used=60, capacity=80)}
    assert await refusal(bench, 81) == "never_fits_kv"
    assert await refusal(bench, 21) == "no_kv_capacity"
    assert (await bench.place(20)).chosen.room_tokens == 20


@pytest.mark.parametrize(("policy", "reason"), [("close", "no_kv_capacity"), ("hold", None), ("open", None)])
async def test_stale_telemetry_goes_by_the_pools_policy(policy: str, reason: str | None):
    bench = Bench(1, pools__main__stale_telemetry=policy, **NO_QUEUE)
    bench.pages.looks, bench.pages.stale_engines = {"e0": look(used=50)}, {"e0"}
    if reason:
        assert await refusal(bench, 10) == reason
    else:
        placement = await bench.place(10)
        assert placement.chosen.room_tokens == (50 if policy == "hold" else 100)


async def test_the_same_leading_text_goes_to_the_same_engine_unless_that_is_loaded():
    bench = Bench(2, engines__e0__kv_capacity_tokens=1_000, engines__e1__kv_capacity_tokens=1_000)
    system = "You are helpful. " * 100
    first = await bench.place(100, texts=[system, "one"])
    again = [(await bench.place(10, texts=[system, word])).state.name for word in ("two", "three")]
    assert again == [first.state.name] * 2
    # 120 of 1,000 tokens more than the other has; with 200 more it would be over the 200 per mille.
    await bench.place(200, texts=[system])
    assert (await bench.place(10, texts=[system, "four"])).state.name != first.state.name
    assert (await bench.place(10, texts=["Another beginning. " * 100])).state.name != first.state.name


async def test_the_first_pool_with_room_takes_it():
    bench = Bench(2, **SPARE)
    assert [(await bench.place(60, pools=BOTH)).pool for _ in range(2)] == ["main", "spare"]


async def test_a_pool_that_serves_something_else_by_now_takes_nothing_for_the_model_it_had():
    bench = Bench()
    x = bench.asked(10)
    models = bench.content["models"]
    bench.configure(models={**models, "other": models[MODEL]}, pools__main__model="other")
    with pytest.raises(Refused) as refused:
        await bench.pools.place(x)
    assert refused.value.reason == "no_engine"


async def test_a_request_of_an_older_view_goes_to_the_engine_as_it_is_now():
    bench = Bench()
    x = bench.asked(10)
    bench.configure(engines__e0__url="http://127.0.0.1:9")
    placement = await bench.place_for(x)
    assert placement.engine.url == placement.state.engine.url == "http://127.0.0.1:9"


async def test_what_an_engine_of_another_address_held_is_not_counted_against_the_new_one():
    bench = Bench(**NO_QUEUE)
    old = await bench.place(100)
    bench.configure(engines__e0__url="http://127.0.0.1:9")
    new = await bench.place(100)
    bench.end(old)
    assert bench.pools.held("e0") == (100, 1)
    bench.end(new)
    assert bench.pools.held("e0") == (0, 0)


@pytest.mark.parametrize(
    ("paths", "needs", "reason"),
    [
        ({}, 101, "never_fits_kv"),
        ({"engines__e0__cordoned": True}, 10, "no_engine"),
        ({"engines__e0__cordoned": True}, 101, "no_engine"),
        (NO_QUEUE, 60, "no_kv_capacity"),
        ({"pools__main__max_concurrency": 1, **NO_QUEUE}, 10, "queue_full"),
    ],
)
async def test_a_refusal_names_the_obstacle_that_passes_first(paths: dict[str, Any], needs: int, reason: str):
    bench = Bench(**paths)
    if reason in ("no_kv_capacity", "queue_full"):
        await bench.place(60)
    assert await refusal(bench, needs) == reason
    assert bench.waiting == 0


async def test_a_pools_concurrency_is_shared_by_the_gateways_and_leaves_each_one():
    bench = Bench(pools__main__max_concurrency=6, **NO_QUEUE)
    bench.configure(live_gateways=3)
    assert bench.pools.moments()[0].limit == 2
    first, _ = await bench.place(1), await bench.place(1)
    assert await refusal(bench, 1) == "queue_full"
    bench.end(first)
    await bench.place(1)
    bench.configure(live_gateways=100)
    assert bench.pools.moments()[0].limit == 1


async def test_an_adaptive_pool_finds_its_limit_from_first_tokens():
    bench = Bench(pools__main__adaptive_concurrency=True, engines__e0__kv_capacity_tokens=10**6)
    begun = bench.pools.moments()[0].limit
    assert begun is not None
    for _ in range(60):
        placements = [await bench.place(1) for _ in range(bench.pools.moments()[0].limit or 0)]
        # As many as there are are served as fast as few are.
        bench.clock.monotonic_ms += 100
        for placement in placements:
            placement.first_token(bench.clock.now_ms())
            bench.end(placement)
    grown = bench.pools.moments()[0].limit
    assert grown is not None
    assert grown > begun
    bench.configure(pools__main__max_concurrency=5)
    assert (bench.pools.moments()[0].limit or 0) <= 5


async def test_the_numbers_of_a_choice_are_noted():
    bench = Bench()
    await bench.place(20)
    x = bench.asked(30, sequences=2)
    await bench.place_for(x)
    assert getattr(x, "notes") == {"kv_tokens": 60, "engine_load_permille": 200, "room_tokens": 80}  # noqa: B009
    assert bench.pools.held("e0") == (80, 3)


def state(url: str) -> EngineState:
    engine = Engine(url=url, kind="vllm", pool="main", served_model="m")
    breaker = NamedBreaker("engine", "e0", BreakerThresholds(), lambda *_: None)
    return EngineState("e0", engine, breaker)


def test_an_engines_words_lose_its_address_in_every_spelling():
    said = state("http://gpu-7.rack:8000/base").redacted(
        "gpu-7.rack:8000 and GPU-7.rack refuse; sgpu-7.rack and gpu-7.racks are others: :8000"
    )
    assert said == "e0 and e0 refuse; sgpu-7.rack and gpu-7.racks are others: :8000"
    assert state("http://[::1]:80").redacted("[::1]:80 or ::1") == "e0 or e0"


CEILING: dict[str, Any] = {"priority_classes__bulk": {"rank": 5, "kv_ceiling_permille": 800}}


async def test_a_class_with_a_ceiling_leaves_room_for_better_ones():
    bench = Bench(1, **NO_QUEUE, **CEILING)
    await bench.place(80, priority_class="bulk")
    assert await refusal(bench, 1, priority_class="bulk") == "no_kv_capacity"
    await bench.place(20)


async def test_what_no_empty_engine_would_take_of_a_class_never_fits():
    bench = Bench(1, **NO_QUEUE, **CEILING)
    assert await refusal(bench, 81, priority_class="bulk") == "never_fits_kv"
    await bench.place(81)


async def test_an_engine_that_is_cordoned_lowers_the_ceiling_in_the_same_revision():
    bench = Bench(2, **NO_QUEUE, **CEILING)
    bench.configure(engines__e1__cordoned=True)
    # Of 200 tokens 40 are kept for others, and one engine has to keep them now.
    assert await refusal(bench, 61, priority_class="bulk") == "no_kv_capacity"
    await bench.place(60, priority_class="bulk")
    await bench.place(40)
