"""Limits bite exactly, on the right tenant, at once, and are given back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.quotas import Quotas
from gateway.refusals import Refused
from gateway.view import compile_view
from tests.gateway.fleet import RunningGateway, ScriptedEngine, changed, chat, configuration, usage
from wire.snapshot import GatewaySnapshot, Tenant


async def limit(gateway: RunningGateway, **limits: int) -> None:
    await gateway.publish(changed(gateway.control.content, tenants__alpha=limits))


async def test_settlement_is_exact_on_real_usage(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, tpm_limit=100)
    for spent, stream in ((usage(20, 5), False), (usage(9, 11), True), (usage(0, 0), False)):
        before = await gateway.remaining_tokens()
        engine.usage = spent
        async with gateway.post(chat(max_tokens=20, stream=stream)) as answer:
            await answer.read()
        # At 100 a minute a token comes back every 600 ms.
        assert before - spent["total_tokens"] <= await gateway.remaining_tokens() <= before - spent["total_tokens"] + 2


async def test_use_beyond_the_reservation_becomes_a_debt(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, tpm_limit=100)
    engine.usage = usage(150, 20)
    assert (await gateway.call(chat(max_tokens=20)))[0] == 200
    status, document, headers = await gateway.call(chat(max_tokens=1))
    assert (status, document["error"]["code"]) == (429, "tpm_limit")
    assert 45 <= int(headers["retry-after"]) <= 60
    assert headers["x-ratelimit-remaining-tokens"] == "0"


async def test_a_stream_without_usage_is_counted(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, tpm_limit=100)
    engine.usage = None
    _, _, headers = await gateway.call(chat())
    prompt = int(headers["x-headworks-prompt-tokens"].split(";")[0])
    await gateway.publish(changed(gateway.control.content, tenants__alpha={}, tenants__beta={"tpm_limit": 100}))
    async with gateway.post(chat(stream=True), tenant="beta") as answer:
        await answer.read()
    assert 100 - prompt - 2 <= await gateway.remaining_tokens("beta") <= 100 - prompt - 1


@pytest.mark.parametrize("stream", [False, True])
async def test_requests_that_race_never_pass_more_than_the_limit(
    gateway: RunningGateway, engine: ScriptedEngine, stream: bool
):
    engine.usage = usage(7, 13)
    await limit(gateway, tpm_limit=100)
    prompt = 7
    answers = await asyncio.gather(
        *(gateway.call_status(chat(max_tokens=20 - prompt, stream=stream)) for _ in range(40))
    )
    assert answers.count(200) == 5, "20 tokens each"
    assert set(answers) == {200, 429}
    assert len(engine.bodies) == 5


async def test_one_tenants_limit_does_not_touch_another(gateway: RunningGateway):
    await limit(gateway, rpm_limit=1)
    assert (await gateway.call(chat()))[0] == 200
    for _ in range(3):
        assert await gateway.refusal(chat()) == (429, "rpm_limit")
        assert (await gateway.call(chat(), tenant="beta"))[0] == 200


async def test_a_lowered_limit_bites_on_the_next_request_and_a_raised_one_gives_room(gateway: RunningGateway):
    await limit(gateway, tpm_limit=1000)
    for _ in range(3):
        assert (await gateway.call(chat(max_tokens=20)))[0] == 200
    await limit(gateway, tpm_limit=27)
    assert await gateway.refusal(chat(max_tokens=20)) == (429, "tpm_limit")
    await limit(gateway, tpm_limit=1000)
    assert (await gateway.call(chat(max_tokens=20)))[0] == 200


async def test_parallel_sequences_count_n_and_come_back(gateway: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.silence
    await limit(gateway, max_parallel_requests=3)
    two = asyncio.create_task(gateway.call(chat(n=2)))
    await engine.arrived.wait()
    assert await gateway.refusal(chat(n=2)) == (429, "max_parallel_requests")
    engine.release.set()
    assert (await two)[0] == 200
    assert (await gateway.call(chat(n=3)))[0] == 200


async def test_with_two_gateways_alive_each_takes_half(gateway: RunningGateway):
    await limit(gateway, tpm_limit=100, rpm_limit=9)
    gateway.control.publish(live_gateways=2)

    async def remaining() -> int:
        return await gateway.remaining_tokens()

    await gateway.until(remaining, 50, "the share of one of two gateways")
    await gateway.control.stop()
    await asyncio.to_thread(gateway.process.kill)
    gateway.launch()
    await gateway.until_ready()
    assert await remaining() == 50, "a restart with the control plane away takes no more than its share"
    await gateway.control.start()
    gateway.control.publish(live_gateways=1)
    await gateway.until(remaining, 100, "the whole limit")


async def test_requests_under_way_end_under_their_own_configuration(gateway: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.silence
    under_way = asyncio.create_task(gateway.call(chat()))
    await engine.arrived.wait()
    content = changed(gateway.control.content)
    content["routes"] = {"none": {"order": 1, "reject": "closed"}}
    await gateway.publish(content)
    assert await gateway.refusal(chat()) == (400, "rejected_by_route")
    engine.release.set()
    status, _, headers = await under_way
    assert (status, headers["x-headworks-revision"]) == (200, "1")


async def test_a_slice_it_cannot_run_is_refused_and_the_last_good_one_stays(gateway: RunningGateway):
    await gateway.publish(changed(gateway.control.content, routes={"r": {"order": 1, "pools": {"nowhere": 1000}}}))
    answer = gateway.control.answer_to(2)
    assert answer is not None
    assert answer["error"][0]["path"] == "/routes/r/pools/nowhere"
    _, _, headers = await gateway.call(chat())
    assert headers["x-headworks-revision"] == "1"


def test_a_refused_reservation_takes_nothing_of_any_limit():
    tenant = Tenant(tpm_limit=10, rpm_limit=2, max_parallel_requests=1)
    quotas = Quotas(now_ms=lambda: 0, lease_ms=60_000)
    quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants={"t": tenant}), 1), 1)
    quotas.take("t", 10, 1).settle(10, reached_engine=False)
    for _ in range(5):
        with pytest.raises(Refused) as refused:
            quotas.take("t", 1, 1)
        assert refused.value.reason == "tpm_limit"
    headers = dict(quotas.headers("t"))
    assert headers[b"x-ratelimit-remaining-requests"] == b"2"
    assert headers[b"x-ratelimit-remaining-tokens"] == b"0"


def test_a_lease_is_settled_once():
    tenant = Tenant(tpm_limit=100, max_parallel_requests=5)
    quotas = Quotas(now_ms=lambda: 0, lease_ms=60_000)
    quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants={"t": tenant}), 1), 1)
    lease = quotas.take("t", 50, 5)
    for _ in range(3):
        lease.settle(30, reached_engine=True)
    assert dict(quotas.headers("t"))[b"x-ratelimit-remaining-tokens"] == b"70"
    quotas.take("t", 1, 5)
    with pytest.raises(Refused, match="5 of 5"):
        quotas.take("t", 1, 1)


async def test_the_engines_usage_is_believed_over_the_measure(engine: ScriptedEngine, tmp_path: Path):
    """A zero is a zero: an engine that says it used nothing leaves the bucket full."""
    content = changed(configuration(engine.url), tenants__alpha={"tpm_limit": 1000})
    from tests.gateway.fleet import running_gateway

    async with running_gateway(tmp_path, content) as gateway:
        engine.usage = usage(0, 0)
        for stream in (True, False):
            async with gateway.post(chat("x" * 400, stream=stream)) as answer:
                await answer.read()
            assert await gateway.remaining_tokens() == 1000
