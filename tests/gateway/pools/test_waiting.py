"""Who waits, in which order they are served, what ends a wait; and that whatever ends it gives everything back."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest

from gateway.pools import Placement
from gateway.refusals import Refused
from tests.gateway.fleet import MODEL
from tests.gateway.pools.asking import OPTIONS, Bench, turns

CLASSES: dict[str, Any] = {
    "gold": {"rank": 0},
    "bulk": {"rank": 5, "shed_order": 1},
    "aged": {"rank": 5, "ageing_ms": 100},
}
LONG_TTL: dict[str, Any] = {"pools__main__queue_ttl_ms": 3_600_000}
SPARE: dict[str, Any] = {
    "pools__spare": {"model": MODEL, "kv_admit_permille": 1000, "queue_ttl_ms": 3_600_000},
    "engines__e1__pool": "spare",
    "routes__all__fallbacks": {"spare": {"order": 1}},
}
BOTH = ("main", "spare")


async def refusal(task: asyncio.Task[Placement]) -> str:
    with pytest.raises(Refused) as refused:
        await asyncio.wait_for(task, 5)
    assert refused.value.retry_after_seconds >= 1
    return refused.value.reason


async def order_of(bench: Bench, running: Placement, **tasks: asyncio.Task[Placement]) -> list[str]:
    """The order in which waiting requests that each need all room are served, each as the one before ends."""
    order = []
    while tasks:
        bench.end(running)
        await turns()
        name = next(name for name, task in tasks.items() if task.done())
        running = tasks.pop(name).result()
        assert not any(task.done() for task in tasks.values())
        order.append(name)
    return order


def nothing_held(bench: Bench) -> bool:
    return bench.pools.held("e0") == (0, 0) and bench.waiting == 0 and bench.pools.moments()[0].in_flight == 0


async def test_a_place_that_becomes_free_is_taken_at_once():
    bench = Bench(**LONG_TTL)
    running = await bench.place(100)
    task = await bench.waits(100)
    bench.end(running)
    # Before its task has had a turn the place is its own: nobody who comes now is before it.
    assert bench.pools.held("e0") == (100, 1)
    placement = await task
    bench.end(placement)
    assert nothing_held(bench)


async def test_a_newcomer_does_not_pass_those_that_wait():
    bench = Bench(**LONG_TTL)
    running = await bench.place(60)
    first = await bench.waits(50)
    second = await bench.waits(50)
    bench.end(running)
    await turns()
    assert first.done()
    assert second.done()


async def test_a_better_rank_goes_first_and_age_makes_up_for_rank():
    bench = Bench(priority_classes=CLASSES, **LONG_TTL)
    running = await bench.place(100)
    bulk = await bench.waits(100, priority_class="bulk")
    aged = await bench.waits(100, priority_class="aged")
    bench.clock.monotonic_ms += 500
    gold = await bench.waits(100, priority_class="gold")
    assert await order_of(bench, running, bulk=bulk, aged=aged, gold=gold) == ["aged", "gold", "bulk"]


async def test_tenants_share_by_weight_while_both_wait():
    """Also of what is served without a wait, and by what was really got."""
    bench = Bench(tenants__alpha={"weight": 1}, tenants__beta={"weight": 3}, pools__main__queue_cap=1000, **LONG_TTL)
    running = await bench.place(100)
    tasks = {
        f"{tenant}{number}": await bench.waits(100, tenant=tenant)
        for number in range(20)
        for tenant in ("alpha", "beta")
    }
    order = await order_of(bench, running, **tasks)
    assert 13 <= [name[0] for name in order[:20]].count("b") <= 16


async def test_who_got_less_than_was_expected_is_charged_less():
    bench = Bench(pools__main__queue_cap=1000, **LONG_TTL)
    running = await bench.place(100)
    tasks = {}
    for number in range(20):
        for tenant, got in (("alpha", 25), ("beta", 100)):
            tasks[tenant, number] = await bench.waits(100, tenant=tenant, got=got)
    order: list[str] = []
    while len(order) < 20:
        bench.end(running)
        await turns()
        key = next(key for key, task in tasks.items() if task.done())
        running = tasks.pop(key).result()
        order.append(key[0])
    assert 14 <= order.count("alpha") <= 18
    for task in tasks.values():
        task.cancel()


async def test_short_ones_go_past_one_that_is_too_long_for_now_but_only_so_often():
    bench = Bench(**LONG_TTL)
    running = await bench.place(50)
    long = await bench.waits(90)
    small = [await bench.place(10) for _ in range(2)]
    # Two may (`overtakings`): from now on what is free is held for it.
    third = await bench.waits(10)
    for placement in small:
        bench.end(placement)
    await turns()
    assert not third.done()
    bench.end(running)
    await turns()
    assert long.done()
    assert third.done()


async def test_half_of_its_time_to_wait_is_for_others():
    bench = Bench(**LONG_TTL)
    await bench.place(50)
    await bench.waits(90)
    bench.clock.monotonic_ms += 1_800_000
    await bench.waits(10)


async def test_room_is_held_at_one_engine_and_not_at_the_others():
    bench = Bench(2, **LONG_TTL)
    most = [await bench.place(60), await bench.place(70)]
    long = await bench.waits(100)
    bench.clock.monotonic_ms += 3_600_000 // 2
    # 40 are free where the room is held, 30 at the other.
    assert (await bench.place(30)).state.name == most[1].state.name
    blocked = await bench.waits(30)
    bench.end(most[0])
    await turns()
    assert long.result().state.name == most[0].state.name
    assert not blocked.done()
    for task in (long, blocked):
        task.cancel()


async def test_a_full_queue_refuses_and_serves_those_it_has():
    bench = Bench(pools__main__queue_cap=1, **LONG_TTL)
    running = await bench.place(100)
    task = await bench.waits(100)
    with pytest.raises(Refused) as refused:
        await bench.place(100)
    assert refused.value.reason == "queue_full"
    assert refused.value.numbers["queue_length"] == refused.value.numbers["queue_cap"] == 1
    assert bench.pools.saturated()
    bench.end(running)
    assert (await task).pool == "main"
    assert not bench.pools.saturated()


async def test_a_better_class_sheds_a_waiting_one_of_a_worse():
    bench = Bench(priority_classes=CLASSES, pools__main__queue_cap=1, **LONG_TTL)
    running = await bench.place(100)
    bulk = await bench.waits(100, priority_class="bulk")
    gold = asyncio.create_task(bench.place(100, priority_class="gold"))
    assert await refusal(bulk) == "shed"
    bench.end(running)
    await gold
    assert bench.waiting == 0


async def test_room_that_was_held_for_one_that_is_shed_is_used_at_once():
    bench = Bench(priority_classes=CLASSES, pools__main__queue_cap=2, **LONG_TTL)
    await bench.place(50)
    long = await bench.waits(90, priority_class="bulk")
    bench.clock.monotonic_ms += 3_600_000 // 2
    short = await bench.waits(30, priority_class="bulk", tenant="beta")
    gold = asyncio.create_task(bench.place(100, priority_class="gold"))
    assert await refusal(long) == "shed"
    await turns()
    assert (short.done(), gold.done()) == (True, False)
    gold.cancel()


async def test_a_tenant_that_fills_the_queue_keeps_none_of_the_others_out():
    bench = Bench(pools__main__queue_cap=4, **LONG_TTL)
    running = await bench.place(100)
    many = [await bench.waits(100) for _ in range(4)]
    few = [asyncio.create_task(bench.place(100, tenant="beta")) for _ in range(3)]
    await turns()
    # Two each: the newest two of alpha's went, and beta's third found none with more than it has.
    assert [await refusal(task) for task in (many[3], many[2], few[2])] == ["shed", "shed", "queue_full"]
    order = await order_of(bench, running, a0=many[0], a1=many[1], b0=few[0], b1=few[1])
    assert sorted(order[:2]) == ["a0", "b0"]


async def test_with_several_pools_one_waits_in_the_first_whose_queue_has_room():
    bench = Bench(2, pools__main__queue_cap=1, **LONG_TTL, **SPARE)
    running = [await bench.place(100, pools=BOTH) for _ in range(2)]
    assert [each.pool for each in running] == ["main", "spare"]
    tasks = [await bench.waits(100, pools=BOTH) for _ in range(2)]
    assert [pool.queue_length for pool in bench.pools.moments()] == [1, 1]
    bench.end(running[1])
    await turns()
    assert [task.done() for task in tasks] == [False, True], "it is not moved to where room came first"


async def test_a_wait_ends_by_the_class_or_the_pools_time():
    bench = Bench(priority_classes={"gold": {"rank": 0, "queue_ttl_ms": 10}}, pools__main__queue_ttl_ms=60)
    running = await bench.place(100)
    pools = await bench.waits(100)
    own = await bench.waits(100, priority_class="gold")
    done, _ = await asyncio.wait({own, pools}, return_when=asyncio.FIRST_COMPLETED)
    assert done == {own}
    assert await refusal(own) == await refusal(pools) == "queue_timeout"
    bench.end(running)
    assert nothing_held(bench)


async def test_whoever_leaves_gives_way_to_those_behind():
    bench = Bench(**LONG_TTL)
    await bench.place(50)
    bench.clock.monotonic_ms += 10
    long = await bench.waits(90)
    bench.clock.monotonic_ms += 3_600_000 // 2
    short = await bench.waits(50)
    long.cancel()
    assert (await asyncio.wait_for(short, 5)).pool == "main"
    assert bench.waiting == 0


async def test_a_place_given_to_one_that_is_cancelled_in_the_same_moment_is_given_back():
    bench = Bench(**LONG_TTL)
    running = await bench.place(100)
    gone = await bench.waits(100)
    next_one = await bench.waits(100)
    bench.end(running)
    gone.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await gone
    assert gone.cancelled()
    bench.end(await asyncio.wait_for(next_one, 5))
    assert nothing_held(bench)


async def test_one_that_is_cancelled_just_before_a_place_becomes_free_gets_none():
    bench = Bench(**LONG_TTL)
    running = await bench.place(100)
    gone = await bench.waits(100)
    next_one = await bench.waits(100)
    gone.cancel()
    bench.end(running)
    bench.end(await asyncio.wait_for(next_one, 5))
    assert nothing_held(bench)


async def test_cordoned_engines_are_left_by_those_that_wait():
    bench = Bench(2, **LONG_TTL, **SPARE)
    for pool in BOTH:
        await bench.place(100, pools=(pool,))
    with_fallback, without = await bench.waits(100, pools=BOTH), await bench.waits(100)
    bench.configure(engines__e0__cordoned=True)
    assert await refusal(without) == "no_engine"
    assert [pool.queue_length for pool in bench.pools.moments()] == [0, 1]
    with_fallback.cancel()


async def test_a_pool_that_is_gone_is_left_by_those_that_wait():
    bench = Bench(2, **LONG_TTL, **SPARE)
    running = await bench.place(100)
    task = await bench.waits(100)
    pools, engines = dict(bench.content["pools"]), dict(bench.content["engines"])
    del pools["main"], engines["e0"]
    bench.configure(pools=pools, engines=engines, routes__all={"order": 1, "pools": {"spare": 1000}})
    assert await refusal(task) == "no_engine"
    bench.end(running)


async def test_a_pool_that_serves_another_model_is_left_by_those_that_wait():
    bench = Bench(**LONG_TTL)
    running = await bench.place(100)
    task = await bench.waits(100)
    bench.configure(models__other=bench.content["models"][MODEL], pools__main__model="other")
    assert await refusal(task) == "no_engine"
    bench.end(running)
    assert nothing_held(bench)


async def test_those_that_wait_are_judged_by_a_new_configuration_at_once():
    bench = Bench(pools__main__queue_cap=2, **LONG_TTL)
    await bench.place(100)
    tasks = [await bench.waits(100), await bench.waits(50)]
    # A smaller cap cuts none off, and takes none in.
    bench.configure(pools__main__queue_cap=1)
    await turns()
    assert not any(task.done() for task in tasks)
    with pytest.raises(Refused):
        await bench.place(100)
    bench.configure(engines__e0__kv_capacity_tokens=200)
    assert (await asyncio.wait_for(tasks[0], 5)).pool == "main"
    bench.configure(pools__main__queue_ttl_ms=0)
    assert await refusal(tasks[1]) == "queue_timeout"


def bulk(ceiling_permille: int) -> dict[str, Any]:
    return {"priority_classes__bulk": {"rank": 5, "kv_ceiling_permille": ceiling_permille}}


async def test_a_ceiling_that_is_lowered_sends_those_away_that_it_never_lets_in():
    bench = Bench(**LONG_TTL, **bulk(800))
    running = await bench.place(100)
    large, small = await bench.waits(70, priority_class="bulk"), await bench.waits(50, priority_class="bulk")
    bench.configure(**bulk(500))
    with pytest.raises(Refused, match="70 tokens of KV cache, more than any engine"):
        await asyncio.wait_for(large, 5)
    bench.end(running)
    assert (await asyncio.wait_for(small, 5)).pool == "main"


async def test_what_fits_under_no_ceiling_while_an_engine_is_cordoned_keeps_no_room_from_smaller_ones():
    bench = Bench(2, replace(OPTIONS, overtakings=0), **LONG_TTL, **bulk(800))
    bench.configure(engines__e1__cordoned=True)
    # Of 200 tokens 40 are kept for others: one engine has 60 for the class now, and 80 when both serve.
    running = await bench.place(100)
    large, small = await bench.waits(80, priority_class="bulk"), await bench.waits(30, priority_class="bulk")
    bench.end(running)
    placement = await asyncio.wait_for(small, 5)
    assert not large.done()
    bench.configure(engines__e1__cordoned=False)
    assert (await asyncio.wait_for(large, 5)).state.name == "e1"
    bench.end(placement)


async def test_more_concurrency_serves_those_that_wait_at_once():
    bench = Bench(pools__main__max_concurrency=1, **LONG_TTL)
    await bench.place(10)
    task = await bench.waits(10)
    bench.configure(pools__main__max_concurrency=2)
    await turns()
    assert task.done()


async def test_what_an_engines_page_tells_serves_those_that_wait():
    from tests.gateway.pools.test_placing import look

    bench = Bench(**LONG_TTL)
    bench.pages.looks = {"e0": look(used=100)}
    task = await bench.waits(100)
    bench.pages.looks = {"e0": look(used=0, running=0)}
    bench.pools.looked("e0")
    await turns()
    assert task.done()


async def test_what_nothing_tells_of_is_looked_at_while_some_wait():
    bench = Bench(**LONG_TTL)
    bench.pages.stale_engines = {"e0"}
    bench.configure(pools__main__stale_telemetry="close")
    task = await bench.waits(100)
    bench.pages.stale_engines = set()
    assert (await asyncio.wait_for(task, 5)).pool == "main"


async def served_at(bench: Bench, every_ms: int, times: int) -> None:
    """Keep one waiting, and serve it, so many times."""
    running = await bench.place(100)
    for _ in range(times):
        task = await bench.waits(100)
        bench.clock.monotonic_ms += every_ms
        bench.end(running)
        running = await task


async def test_what_cannot_be_served_in_time_is_refused_at_the_door():
    bench = Bench(pools__main__queue_ttl_ms=5_000, pools__main__queue_cap=100)
    await served_at(bench, 1_000, 20)
    # One a second, at most some 1.5: of ten that wait the last waits more than 5 s.
    waiting: list[asyncio.Task[Placement]] = []
    refused: Refused | None = None
    while refused is None and len(waiting) < 10:
        try:
            waiting.append(await bench.waits(100))
        except Refused as error:
            refused = error
    assert refused is not None
    assert refused.reason == "cannot_finish_in_time"
    assert refused.retry_after_seconds >= 6
    assert 5 <= len(waiting) < 10
    # A deadline is such a time too; one that goes first is in time.
    with pytest.raises(Refused):
        await bench.place(100, deadline_seconds=1)
    for task in waiting:
        task.cancel()


async def test_only_those_that_go_before_it_make_a_request_late():
    bench = Bench(pools__main__queue_ttl_ms=5_000, pools__main__queue_cap=100, priority_classes=CLASSES)
    await served_at(bench, 1_000, 20)
    many = [asyncio.create_task(bench.place(100, priority_class="bulk")) for _ in range(20)]
    await turns()
    assert any(task.done() for task in many), "none is late"
    gold = await bench.waits(100, priority_class="gold")
    other = await bench.waits(100, priority_class="bulk", tenant="beta")
    for task in (*many, gold, other):
        task.cancel()
    await asyncio.gather(*many, return_exceptions=True)


async def test_a_rate_that_is_not_measured_refuses_nobody():
    bench = Bench(pools__main__queue_ttl_ms=5_000, pools__main__queue_cap=100)
    await served_at(bench, 10_000, 3)
    tasks = [await bench.waits(100) for _ in range(50)]
    for task in tasks:
        task.cancel()
