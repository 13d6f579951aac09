"""Limits bite exactly, on the right tenant, at once, and are given back."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.peers import kept_live_gateways
from gateway.quotas import Quotas
from gateway.refusals import Refused
from gateway.view import compile_view
from tests.gateway.fleet import (
    KEYS,
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
    scripted_engine,
    shared_configuration,
    usage,
)
from tests.services import free_port
from wire.snapshot import GatewaySnapshot, Tenant

in_one_loop = pytest.mark.asyncio(loop_scope="module")

engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("quota"), configuration()) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(shared: RunningGateway, engine: ScriptedEngine) -> RunningGateway:
    await shared.begin_anew(shared_configuration(engine.url))
    return shared


async def limit(gateway: RunningGateway, **limits: int) -> None:
    await gateway.publish(changed(gateway.control.content, tenants__alpha=limits))


def refilled(limit_per_minute: int, since: float) -> int:
    """The most tokens that came back since a time of the monotonic clock; a busy machine takes its time."""
    return math.ceil((time.monotonic() - since) * limit_per_minute / 60)


@in_one_loop
async def test_settlement_is_exact_on_real_usage(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, tpm_limit=100)
    began = time.monotonic()
    for spent, stream in ((usage(20, 5), False), (usage(9, 11), True), (usage(0, 0), False)):
        before = await gateway.remaining_tokens()
        engine.usage = spent
        async with gateway.post(chat(max_tokens=20, stream=stream)) as answer:
            await answer.read()
        left = await gateway.remaining_tokens()
        assert before - spent["total_tokens"] <= left <= before - spent["total_tokens"] + refilled(100, began)
        began = time.monotonic()


@in_one_loop
async def test_use_beyond_the_reservation_becomes_a_debt(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, tpm_limit=100)
    began = time.monotonic()
    engine.usage = usage(150, 20)
    assert (await gateway.call(chat(max_tokens=20)))[0] == 200
    status, document, headers = await gateway.call(chat(max_tokens=1))
    assert (status, document["error"]["code"]) == (429, "tpm_limit")
    # 70 tokens of debt and the 8 that are asked for, at 100 a minute; 20 % at most are put on top.
    assert 46.8 - (time.monotonic() - began) <= int(headers["retry-after"]) <= 46.8 * 1.2 + 1
    assert headers["x-ratelimit-remaining-tokens"] == "0"


@in_one_loop
@pytest.mark.parametrize("stream", [False, True])
async def test_a_usage_that_no_context_holds_costs_no_more_than_one(
    gateway: RunningGateway, engine: ScriptedEngine, stream: bool
):
    context = 2000
    await limit(gateway, daily_token_budget=10**6, tpm_limit=10_000)
    began = time.monotonic()
    engine.usage = {"prompt_tokens": 2**53 - 1, "completion_tokens": 2**53 - 1}
    async with gateway.post(chat(stream=stream)) as answer:
        await answer.read()
    used = 10_000 - await gateway.remaining_tokens()
    assert 2 * context - refilled(10_000, began) <= used <= 2 * context
    assert await gateway.grown("headworks_gateway_prompt_tokens_total", tenant="alpha") == context


@in_one_loop
async def test_a_stream_without_usage_is_counted(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, tpm_limit=100)
    engine.usage = None
    _, _, headers = await gateway.call(chat())
    prompt = int(headers["x-headworks-prompt-tokens"].split(";")[0])
    await gateway.publish(changed(gateway.control.content, tenants__alpha={}, tenants__beta={"tpm_limit": 100}))
    async with gateway.post(chat(stream=True), tenant="beta") as answer:
        await answer.read()
    assert 100 - prompt - 2 <= await gateway.remaining_tokens("beta") <= 100 - prompt - 1


@in_one_loop
@pytest.mark.parametrize("stream", [False, True])
async def test_requests_that_race_never_pass_more_than_the_limit(
    gateway: RunningGateway, engine: ScriptedEngine, stream: bool
):
    engine.usage = usage(7, 13)
    await limit(gateway, tpm_limit=100)
    prompt = 7
    began = time.monotonic()
    answers = await asyncio.gather(
        *(gateway.call_status(chat(max_tokens=20 - prompt, stream=stream)) for _ in range(40))
    )
    assert 5 <= answers.count(200) <= 5 + refilled(100, began) // 20, "20 tokens each"
    assert set(answers) == {200, 429}
    assert len(engine.bodies) == answers.count(200)


@in_one_loop
async def test_a_request_that_reached_no_engine_is_not_counted_as_one(gateway: RunningGateway, engine: ScriptedEngine):
    down = {"e0": {**gateway.control.content["engines"]["e0"], "url": f"http://127.0.0.1:{free_port()}"}}
    content = changed(gateway.control.content, tenants__alpha={"rpm_limit": 1})
    await gateway.publish(changed(content, engines=down))
    for _ in range(3):
        assert await gateway.refusal(chat()) == (503, "engine_unreachable")
    await gateway.publish(content)
    assert (await gateway.call(chat()))[0] == 200
    assert await gateway.refusal(chat()) == (429, "rpm_limit")


@in_one_loop
async def test_one_tenants_limit_does_not_touch_another(gateway: RunningGateway):
    await limit(gateway, rpm_limit=1)
    assert (await gateway.call(chat()))[0] == 200
    for _ in range(3):
        assert await gateway.refusal(chat()) == (429, "rpm_limit")
        assert (await gateway.call(chat(), tenant="beta"))[0] == 200


@in_one_loop
async def test_a_lowered_limit_bites_on_the_next_request_and_a_raised_one_gives_room(gateway: RunningGateway):
    await limit(gateway, tpm_limit=1000)
    for _ in range(3):
        assert (await gateway.call(chat(max_tokens=20)))[0] == 200
    await limit(gateway, tpm_limit=27)
    assert await gateway.refusal(chat(max_tokens=20)) == (429, "tpm_limit")
    await limit(gateway, tpm_limit=1000)
    assert (await gateway.call(chat(max_tokens=20)))[0] == 200


@in_one_loop
async def test_parallel_sequences_count_n_and_come_back(gateway: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.silence
    await limit(gateway, max_parallel_requests=3)
    two = asyncio.create_task(gateway.call(chat(n=2)))
    await engine.arrived.wait()
    assert await gateway.refusal(chat(n=2)) == (429, "max_parallel_requests")
    engine.release.set()
    assert (await two)[0] == 200
    assert (await gateway.call(chat(n=3)))[0] == 200


@in_one_loop
async def test_with_two_gateways_alive_each_takes_half(engine: ScriptedEngine, tmp_path: Path):
    async with running_gateway(tmp_path, configuration(engine.url)) as gateway:
        await takes_half_with_two_alive(gateway)


async def takes_half_with_two_alive(gateway: RunningGateway) -> None:
    await limit(gateway, tpm_limit=100, rpm_limit=9)
    gateway.control.publish(live_gateways=2)

    async def remaining() -> int:
        return await gateway.remaining_tokens()

    async def kept() -> int:
        return kept_live_gateways(gateway.state_dir)

    await gateway.until(remaining, 50, "the share of one of two gateways")
    await gateway.until(kept, 2, "the number of gateways on disk")
    await gateway.control.stop()
    await asyncio.to_thread(gateway.process.kill)
    gateway.launch()
    await gateway.until_ready()
    assert await remaining() == 50, "a restart with the control plane away takes no more than its share"
    await gateway.control.start()
    gateway.control.publish(live_gateways=1)
    await gateway.until(remaining, 100, "the whole limit")


@in_one_loop
async def test_requests_under_way_end_under_their_own_configuration(gateway: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.silence
    begun_under = gateway.control.revision
    under_way = asyncio.create_task(gateway.call(chat()))
    await engine.arrived.wait()
    content = changed(gateway.control.content)
    content["routes"] = {"none": {"order": 1, "reject": "closed"}}
    await gateway.publish(content)
    assert await gateway.refusal(chat()) == (400, "rejected_by_route")
    engine.release.set()
    status, _, headers = await under_way
    assert (status, headers["x-headworks-revision"]) == (200, str(begun_under))


@in_one_loop
async def test_a_slice_it_cannot_run_is_refused_and_the_last_good_one_stays(gateway: RunningGateway):
    good = gateway.control.revision
    await gateway.publish(changed(gateway.control.content, routes={"r": {"order": 1, "pools": {"nowhere": 1000}}}))
    answer = gateway.control.answer_to(good + 1)
    assert answer is not None
    assert answer["error"][0]["path"] == "/routes/r/pools/nowhere"
    _, _, headers = await gateway.call(chat())
    assert headers["x-headworks-revision"] == str(good)


@in_one_loop
async def test_a_tenant_that_is_removed_while_its_request_is_read_is_refused_by_name(gateway: RunningGateway):
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    body = json.dumps({"model": MODEL, "prompt": "hello"})
    head = f"POST /v1/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {KEYS['alpha']}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body[0]}".encode())

    async def in_flight() -> float:
        return await gateway.metric("headworks_gateway_requests_in_flight")

    await gateway.until(in_flight, 1, "the request to begin")
    content = changed(gateway.control.content)
    content["tenants"].pop("alpha")
    content["keys"] = {sha: key for sha, key in content["keys"].items() if key["tenant"] != "alpha"}
    await gateway.publish(content)
    writer.write(body[1:].encode())
    answer = await asyncio.wait_for(reader.readuntil(b"}}"), 10)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b'"code":"unknown_key"' in answer


def test_a_refused_reservation_takes_nothing_of_any_limit():
    tenant = Tenant(tpm_limit=10, rpm_limit=2, max_parallel_requests=1)
    quotas = Quotas(now_ms=lambda: 0, unix_ms=lambda: 0, lease_ms=60_000)
    quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants={"t": tenant}), 1), 1)
    quotas.take("t", 10, 1).settle(10, reached_engine=False)
    for _ in range(5):
        with pytest.raises(Refused) as refused:
            quotas.take("t", 1, 1)
        assert refused.value.reason == "tpm_limit"
    headers = dict(quotas.headers("t"))
    assert headers[b"x-ratelimit-remaining-requests"] == b"2"
    assert headers[b"x-ratelimit-remaining-tokens"] == b"0"


def quotas_of(tenant: Tenant) -> Quotas:
    quotas = Quotas(now_ms=lambda: 0, unix_ms=lambda: 0, lease_ms=60_000)
    quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants={"t": tenant}), 1), 1)
    return quotas


def refused(quotas: Quotas, tokens: int, sequences: int) -> Refused:
    with pytest.raises(Refused) as refusal:
        quotas.take("t", tokens, sequences)
    return refusal.value


@pytest.mark.parametrize(("tokens", "sequences", "param"), [(101, 1, "max_tokens"), (1, 4, "n")])
def test_what_can_never_fit_is_named_before_a_wait(tokens: int, sequences: int, param: str):
    quotas = quotas_of(Tenant(tpm_limit=100, rpm_limit=2, max_parallel_requests=3))
    quotas.take("t", 10, 2)
    quotas.take("t", 10, 1)
    assert refused(quotas, 1, 1).reason == "max_parallel_requests"
    assert (refused(quotas, tokens, sequences).reason, refused(quotas, tokens, sequences).param) == (
        "never_fits",
        param,
    )
    headers = dict(quotas.headers("t"))
    assert (headers[b"x-ratelimit-remaining-requests"], headers[b"x-ratelimit-remaining-tokens"]) == (b"0", b"80")


def test_a_request_limit_of_zero_is_named_before_a_wait_for_tokens():
    quotas = quotas_of(Tenant(tpm_limit=100))
    quotas.take("t", 100, 1)
    assert refused(quotas, 1, 1).reason == "tpm_limit"
    tenant = Tenant(tpm_limit=100, rpm_limit=0)
    quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants={"t": tenant}), 2), 1)
    refusal = refused(quotas, 1, 1)
    assert (refusal.reason, refusal.message) == ("never_fits", "1 request is asked for; the limit is 0 a minute")


def test_one_is_and_two_are_asked_for():
    quotas = quotas_of(Tenant(tpm_limit=10, rpm_limit=1, max_parallel_requests=2))
    assert refused(quotas, 1, 3).message == "3 sequences are asked for and at most 2 may run at once"
    assert "11 tokens are asked for (largest output included)" in refused(quotas, 11, 1).message
    lease = quotas.take("t", 5, 2)
    assert refused(quotas, 1, 1).message == "1 sequence is asked for and 2 of 2 parallel sequences are running"
    lease.settle(10, reached_engine=True)
    assert refused(quotas, 1, 1).message.startswith("1 request is asked for and 0 of 1 requests a minute are left")


def test_a_lease_is_settled_once():
    tenant = Tenant(tpm_limit=100, max_parallel_requests=5)
    quotas = Quotas(now_ms=lambda: 0, unix_ms=lambda: 0, lease_ms=60_000)
    quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants={"t": tenant}), 1), 1)
    lease = quotas.take("t", 50, 5)
    for _ in range(3):
        lease.settle(30, reached_engine=True)
    assert dict(quotas.headers("t"))[b"x-ratelimit-remaining-tokens"] == b"70"
    quotas.take("t", 1, 5)
    with pytest.raises(Refused, match="5 of 5"):
        quotas.take("t", 1, 1)


@in_one_loop
async def test_the_engines_usage_is_believed_over_the_measure(gateway: RunningGateway, engine: ScriptedEngine):
    """A zero is a zero: an engine that says it used nothing leaves the bucket full."""
    await limit(gateway, tpm_limit=1000)
    engine.usage = usage(0, 0)
    for stream in (True, False):
        async with gateway.post(chat("x" * 400, stream=stream)) as answer:
            await answer.read()
        assert await gateway.remaining_tokens() == 1000
