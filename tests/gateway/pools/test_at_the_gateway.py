"""The queue, by requests over HTTP to a gateway process before scripted engines."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientError, web

from tests.gateway.fleet import (
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
    scripted_engine,
    terminate,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
ONE_AT_A_TIME: dict[str, Any] = {"max_concurrency": 1, "queue_ttl_ms": 60_000}
_numbers = itertools.count(1)
QUICK_BREAKER = {"minimum_requests": 1, "error_permille": 1, "cooldown_ms": 60_000}


class Scene:
    """A pool that takes one request at a time, and an engine that is silent until it is told to answer.

    The pool is new to the gateway: no queue, breaker, rate or counter of an earlier scene's is in it.
    """

    def __init__(self, gateway: RunningGateway, engine: ScriptedEngine) -> None:
        self.gateway, self.engine = gateway, engine
        self.pool = f"pool-{next(_numbers)}"

    async def open(self) -> None:
        content = changed(configuration(self.engine.url), tenants__alpha={"tpm_limit": 10_000})
        content = json.loads(json.dumps(content).replace('"main"', f'"{self.pool}"'))
        await self.gateway.publish(content)
        await self.configure(**ONE_AT_A_TIME)

    async def publish(self, **paths: Any) -> None:
        await self.gateway.publish(changed(self.gateway.control.content, **paths))

    async def configure(self, **fields: Any) -> None:
        """Set fields of the pool."""
        await self.publish(**{f"pools__{self.pool}__{name}": value for name, value in fields.items()})

    async def metric(self, name: str, **labels: str) -> float:
        return await self.gateway.metric(f"headworks_gateway_{name}", pool=self.pool, **labels)

    async def begin(self, behave: Any = None, **fields: Any) -> asyncio.Task[Any]:
        """A request that the engine has, and keeps."""
        self.engine.behave = behave or self.engine.silence
        task = asyncio.create_task(self.gateway.call(chat(**fields)))
        await asyncio.wait_for(self.engine.arrived.wait(), 10)
        return task

    async def wait(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
        """A request that waits at the gateway."""
        before = await self.length()
        task = asyncio.create_task(self.gateway.call(*(args or (chat(),)), **options))
        await self.gateway.until(self.length, before + 1, "the request to wait")
        return task

    async def length(self) -> float:
        return await self.metric("queue_length")

    async def nothing_held(self) -> None:
        async def held() -> list[float]:
            names = ("queue_length", "queue_tokens", "pool_requests", "engine_requests", "kv_reserved_tokens")
            return [await self.metric(name) for name in names]

        await self.gateway.until(held, [0] * 5, "all to be given back")


engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")
second_engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("queue"), configuration()) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def scene(shared: RunningGateway, engine: ScriptedEngine) -> Scene:
    scene = Scene(shared, engine)
    await scene.open()
    return scene


@pytest_asyncio.fixture(loop_scope="module")
async def own_scene(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[Scene]:
    """At a gateway that ends with the test, or whose quotas are full."""
    async with running_gateway(tmp_path, configuration()) as gateway:
        scene = Scene(gateway, engine)
        await scene.open()
        yield scene


def reason(answer: Any) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["code"]


async def test_a_place_that_becomes_free_goes_to_the_next_at_once(scene: Scene):
    first = await scene.begin()
    second = await scene.wait()
    assert await scene.metric("queue_tokens") > 0
    assert await scene.metric("concurrency_limit") == 1
    scene.engine.release.set()
    begun = time.monotonic()
    assert [(await each)[0] for each in (first, second)] == [200, 200]
    assert time.monotonic() - begun < 0.5, "what nothing tells of is looked at once a second; this is told"
    await scene.nothing_held()


async def test_a_wait_that_is_over_is_refused_before_any_work(own_scene: Scene):
    scene = own_scene
    left = await scene.gateway.remaining_tokens()
    first = await scene.begin()
    await scene.configure(queue_ttl_ms=50)
    status, document, headers = await scene.gateway.call(chat())
    assert (status, document["error"]["code"]) == (503, "queue_timeout")
    assert "50 ms" in document["error"]["message"]
    assert int(headers["retry-after"]) >= 1
    assert len(scene.engine.bodies) == 1
    scene.engine.release.set()
    await first
    assert await scene.gateway.remaining_tokens() >= left - 9, "only the one that was answered is charged"
    await scene.nothing_held()


async def test_a_deadline_ends_a_wait(scene: Scene):
    first = await scene.begin()
    refusal = await scene.gateway.refusal(chat(), headers={"X-Request-Timeout-Ms": "60"})
    assert refusal == (504, "deadline_exceeded")
    assert len(scene.engine.bodies) == 1
    scene.engine.release.set()
    await first
    await scene.nothing_held()


async def test_a_full_queue_refuses_sheds_and_takes_a_new_cap_at_once(scene: Scene):
    await scene.configure(queue_cap=1)
    await scene.publish(priority_classes={"interactive": {"rank": 0}, "batch": {"rank": 9, "shed_order": 1}})
    first = await scene.begin()
    batch = await scene.wait(headers={"X-Priority-Class": "batch"})
    assert await scene.gateway.refusal(chat(), headers={"X-Priority-Class": "batch"}) == (503, "queue_full")
    better = asyncio.create_task(scene.gateway.call(chat(), headers={"X-Priority-Class": "interactive"}))
    assert reason(await batch) == (503, "shed")
    await scene.configure(queue_cap=2)
    last = await scene.wait()
    scene.engine.release.set()
    assert [(await each)[0] for each in (first, better, last)] == [200] * 3
    for named in ("queue_full", "shed"):
        assert await scene.metric("requests_total", outcome="refused", reason=named) == 1
    await scene.nothing_held()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_the_queue_is_gone_at_once(scene: Scene, stream: bool):
    first = await scene.begin()
    gone = await scene.wait(chat("gone", stream=stream))
    stays = await scene.wait(chat("stays"))
    gone.cancel()
    begun = time.monotonic()
    await scene.gateway.until(scene.length, 1, "the one that left to be gone")
    assert time.monotonic() - begun < 1
    scene.engine.release.set()
    assert [(await each)[0] for each in (first, stays)] == [200, 200]
    assert ["gone" in str(body) for body in scene.engine.bodies] == [False, False]
    await scene.nothing_held()
    assert await scene.metric("requests_total", outcome="cancelled") == 1


async def test_two_tenants_share_a_saturated_pool_whoever_sends_more(scene: Scene):
    order: list[str] = []

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        order.append(body["messages"][0]["content"])
        return await scene.engine.answer(request, body)

    first = await scene.begin()
    many = [await scene.wait(chat("alpha")) for _ in range(12)]
    few = [await scene.wait(chat("beta"), tenant="beta") for _ in range(4)]
    scene.engine.behave = answer
    scene.engine.release.set()
    assert {(await each)[0] for each in (first, *many, *few)} == {200}
    assert order[:8].count("beta") == 4, "its four are served by turns with alpha's, not after its twelve"
    await scene.nothing_held()


async def test_short_requests_pass_one_that_waits_for_room(scene: Scene):
    await scene.publish(engines__e0__kv_capacity_tokens=400)
    await scene.configure(kv_admit_permille=1000, max_concurrency=99)
    first = await scene.begin(max_tokens=200)
    long = await scene.wait(chat("long", max_tokens=300))
    scene.engine.behave = scene.engine.answer
    assert (await scene.gateway.call(chat("short", max_tokens=20)))[0] == 200
    assert not long.done()
    scene.engine.release.set()
    assert [(await each)[0] for each in (first, long)] == [200, 200]
    await scene.nothing_held()


async def test_a_drain_serves_those_that_wait_and_takes_no_more(own_scene: Scene):
    scene = own_scene
    first = await scene.begin()
    second = await scene.wait()
    terminate(scene.gateway)
    await scene.gateway.until(scene.gateway.ready_status, 503, "the drain to begin")
    assert await scene.gateway.refusal(chat()) == (503, "draining")
    scene.engine.release.set()
    assert [(await each)[0] for each in (first, second)] == [200, 200]
    assert await asyncio.to_thread(scene.gateway.process.wait, 10) == 0


async def test_a_drain_that_takes_too_long_tells_those_that_wait_too(engine: ScriptedEngine, tmp_path: Path):
    async with running_gateway(tmp_path, configuration(), {"HEADWORKS_GATEWAY_DRAIN_SECONDS": "0.2"}) as gateway:
        scene = Scene(gateway, engine)
        await scene.open()
        tasks = [await scene.begin(), await scene.wait(), await scene.wait()]
        terminate(gateway)
        assert [reason(await each) for each in tasks] == [(503, "draining")] * 3
        assert await asyncio.to_thread(gateway.process.wait, 10) == 0
        assert len(engine.bodies) == 1


async def test_a_cordon_sends_those_that_wait_away_at_once(scene: Scene):
    first = await scene.begin()
    waiting = await scene.wait()
    await scene.publish(engines__e0__cordoned=True)
    assert reason(await asyncio.wait_for(waiting, 5)) == (503, "no_engine")
    scene.engine.release.set()
    assert (await first)[0] == 200, "what runs goes on"
    await scene.nothing_held()


async def test_an_engine_that_dies_leaves_none_waiting_for_it(scene: Scene):
    async def die(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await scene.engine.release.wait()
        return await scene.engine.cut(request, body)

    await scene.configure(breaker=QUICK_BREAKER)
    first = await scene.begin(die)
    waiting = [await scene.wait() for _ in range(3)]
    scene.engine.release.set()
    assert reason(await first) == (502, "engine_error")
    assert [reason(await asyncio.wait_for(each, 5)) for each in waiting] == [(503, "breaker_open")] * 3
    assert await scene.metric("pool_breaker_state", state="open") == 1
    await scene.nothing_held()


async def test_a_crowd_gets_answers_or_named_refusals_and_leaves_nothing_behind(scene: Scene):
    """Far more than are served in their time: each gets an answer or a named refusal, and all is given back."""
    await scene.configure(queue_ttl_ms=300, queue_cap=8)

    async def slow(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return await scene.engine.answer(request, body)

    scene.engine.behave = slow

    async def client(number: int) -> list[str]:
        seen = []
        for turn in range(12):
            try:
                async with asyncio.timeout(0.1 if (number + turn) % 7 == 0 else 20):
                    answer = await scene.gateway.call(chat(str(number)))
            except (TimeoutError, ClientError):
                seen.append("left")
                continue
            seen.append("ok" if answer[0] == 200 else reason(answer)[1])
        return seen

    seen = [each for one in await asyncio.gather(*map(client, range(30))) for each in one]
    assert set(seen) <= {"ok", "left", "queue_full", "queue_timeout", "cannot_finish_in_time"}
    assert {"ok", "left"} < set(seen)
    await scene.gateway.until_left(scene.engine)
    await scene.nothing_held()


async def test_requests_with_the_same_beginning_go_to_the_same_engine_with_their_priority(
    shared: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine
):
    content = configuration(engine.url, second_engine.url)
    await shared.publish(changed(content, **{f"models__{MODEL}__max_context_tokens": 20_000}))
    system = {"role": "system", "content": "You answer in rhymes. " * 100}
    for word in ("one", "two", "three", "four"):
        asked = chat(messages=[system, {"role": "user", "content": word}], priority=-5)
        status, _, _ = await shared.call(asked, headers={"X-Priority-Class": "batch"})
        assert status == 200
    assert sorted([len(engine.bodies), len(second_engine.bodies)]) == [0, 4]
    # A client's own priority would be a way past all others; the class's is sent.
    assert {body["priority"] for body in (*engine.bodies, *second_engine.bodies)} == {9}
