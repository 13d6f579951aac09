"""What a client gets when nothing is wrong."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.gateway.fleet import (
    KEYS,
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    delta,
    event,
    running_gateway,
    scripted_engine,
    usage,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("answers"), configuration()) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(shared: RunningGateway, engine: ScriptedEngine) -> RunningGateway:
    await shared.begin_anew(configuration(engine.url))
    return shared


async def test_an_answer_passes_through_with_the_headers_of_the_gateway(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"tpm_limit": 60, "rpm_limit": 6}))
    status, document, headers = await gateway.call(chat("hello"), headers={"X-Request-Id": "mine-1"})
    assert (status, document["usage"]) == (200, usage(7, 2))
    assert headers["x-request-id"] == "mine-1"
    assert headers["x-headworks-revision"] == str(gateway.control.revision)
    assert headers["x-headworks-prompt-tokens"].endswith(";source=estimate")
    assert headers["x-headworks-max-tokens"] == "50;reason=default"
    assert (headers["x-ratelimit-limit-tokens"], headers["x-ratelimit-limit-requests"]) == ("60", "6")
    assert headers["x-ratelimit-remaining-tokens"] == "51"
    assert headers["x-ratelimit-remaining-requests"] == "5"
    assert headers["x-ratelimit-reset-tokens"] == "9s"
    assert headers["x-ratelimit-reset-requests"] == "10s"


async def test_the_engine_gets_its_own_model_name_a_bound_and_nothing_of_the_tenant(
    gateway: RunningGateway, engine: ScriptedEngine
):
    engines = {"e0": {**gateway.control.content["engines"]["e0"], "api_key": "engine-secret"}}
    await gateway.publish(changed(gateway.control.content, engines=engines))
    body = chat("hello", temperature=0.25, max_completion_tokens=9, tools=[{"type": "function"}], stream=True)
    async with gateway.post(body, headers={"X-Request-Id": "mine", "Cookie": "a=b"}) as answer:
        await answer.read()
    sent, headers = engine.bodies[0], engine.headers[0]
    assert sent["model"] == "served-8b"
    assert sent["max_tokens"] == 9
    assert "max_completion_tokens" not in sent
    assert sent["stream_options"] == {"include_usage": True}
    assert (sent["temperature"], sent["tools"]) == (0.25, [{"type": "function"}])
    assert headers["authorization"] == "Bearer engine-secret"
    assert headers["x-request-id"].startswith("mine-")
    assert "cookie" not in headers
    assert KEYS["alpha"] not in json.dumps([sent, headers])


async def test_one_request_id_sent_twice_reaches_the_engine_as_two(gateway: RunningGateway, engine: ScriptedEngine):
    for _ in range(2):
        await gateway.call(chat(), headers={"X-Request-Id": "same"})
    first, second = (headers["x-request-id"] for headers in engine.headers)
    assert first != second


async def test_a_chunk_arrives_before_the_next_is_made(gateway: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.one_token_then_silence
    async with gateway.post(chat(stream=True)) as answer:
        assert await answer.content.readany() == event(delta("first"))
        assert engine.open_requests == 1
        engine.release.set()
        rest = await answer.content.read()
    assert rest.startswith(event(delta("second")))
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-accel-buffering"] == "no"


async def test_usage_in_a_stream_is_hidden_unless_asked_for(gateway: RunningGateway):
    async with gateway.post(chat(stream=True)) as answer:
        hidden = await answer.text()
    async with gateway.post(chat(stream=True, stream_options={"include_usage": True})) as answer:
        shown = await answer.text()
    assert "usage" not in hidden
    assert hidden.endswith("data: [DONE]\n\n")
    assert '"prompt_tokens": 7' in shown


async def test_events_cut_anywhere_arrive_whole(gateway: RunningGateway, engine: ScriptedEngine):
    whole = event(delta("ä" * 9)) + event({"choices": [], "usage": usage(3, 4)}) + b"data: [DONE]\n\n"

    async def byte_by_byte(request, body):
        return await engine.stream(request, *(bytes([byte]) for byte in whole))

    engine.behave = byte_by_byte
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"tpm_limit": 1000}))
    async with gateway.post(chat(stream=True)) as answer:
        assert await answer.read() == event(delta("ä" * 9)) + b"data: [DONE]\n\n"
    assert 993 <= await gateway.remaining_tokens() <= 994


async def test_completions_take_every_form_of_prompt(gateway: RunningGateway, engine: ScriptedEngine):
    for prompt, tokens in (("12345678", 2), (["1234", "5678"], 2), ([1, 2, 3], 3), ([[1, 2], [3]], 3)):
        status, _, headers = await gateway.call({"model": MODEL, "prompt": prompt}, path="/v1/completions")
        assert status == 200
        assert headers["x-headworks-prompt-tokens"] == f"{tokens};source=estimate"
        assert engine.bodies[-1]["prompt"] == prompt


async def test_models_lists_what_the_tenant_may_use(gateway: RunningGateway):
    other = {**gateway.control.content["models"][MODEL]}
    content = changed(
        gateway.control.content,
        models={MODEL: other, "other/model": other},
        pools={"main": {"model": MODEL}, "second": {"model": "other/model"}},
        tenants__beta={"models": {"other/model": True}},
    )
    await gateway.publish(content)

    async def names(tenant: str) -> list[str]:
        async with gateway.http.get(
            f"{gateway.url}/v1/models", headers={"Authorization": f"Bearer {KEYS[tenant]}"}
        ) as answer:
            return [row["id"] for row in (await answer.json())["data"]]

    assert await names("alpha") == [MODEL, "other/model"]
    assert await names("beta") == ["other/model"]


async def test_health_readiness_and_metrics_answer_without_a_key(gateway: RunningGateway):
    await gateway.call(chat())
    async with gateway.http.get(f"{gateway.url}/healthz") as answer:
        assert answer.status == 200
    labels = {"pool": "main", "tenant": "alpha", "priority_class": "unknown"}
    done = {"outcome": "ok", "reason": "none"}
    assert await gateway.grown("headworks_gateway_requests_total", **labels, **done) == 1
    assert await gateway.grown("headworks_gateway_prompt_tokens_total", **labels) == 7
    assert await gateway.grown("headworks_gateway_generation_tokens_total", **labels) == 2
    assert await gateway.grown("headworks_gateway_e2e_seconds_count", **labels) == 1
    assert await gateway.metric("headworks_gateway_config_revision") == gateway.control.revision
    assert await gateway.metric("headworks_gateway_config_connected") == 1
    assert await gateway.metric("headworks_gateway_breaker_state", engine="e0", state="closed") == 1
    assert await gateway.metric("headworks_gateway_kv_reserved_tokens", engine="e0") == 0


async def test_time_to_first_token_is_told_of_streams_alone(gateway: RunningGateway):
    await gateway.call(chat())
    assert await gateway.grown("headworks_gateway_ttft_seconds_count") == 0
    async with gateway.post(chat(stream=True)) as answer:
        await answer.read()

    async def counts() -> tuple[float, float]:
        ttft, e2e = "headworks_gateway_ttft_seconds_count", "headworks_gateway_e2e_seconds_count"
        return await gateway.grown(ttft), await gateway.grown(e2e)

    await gateway.until(counts, (1, 2), "both requests to be counted")


async def test_what_a_client_sends_never_becomes_a_label(gateway: RunningGateway):
    await gateway.call(chat(model="no/such-model"), headers={"X-Priority-Class": "batch"})
    await gateway.call(chat(), tenant=None, headers={"Authorization": "Bearer hw-nobody"})
    async with gateway.http.get(f"{gateway.url}/metrics") as answer:
        page = await answer.text()
    assert "no/such-model" not in page
    assert "nobody" not in page
    assert (
        await gateway.grown("headworks_gateway_requests_total", pool="unknown", tenant="unknown", reason="unknown_key")
        == 1
    )
    assert await gateway.grown("headworks_gateway_requests_total", priority_class="batch", tenant="alpha") == 1


async def test_http2_is_served_on_the_same_port(gateway: RunningGateway):
    import asyncio

    from tests.services import service_binary

    curl = await asyncio.create_subprocess_exec(
        str(service_binary("curl")), "--silent", "--http2-prior-knowledge", "--max-time", "10",
        "--header", f"Authorization: Bearer {KEYS['alpha']}", "--data", json.dumps(chat(stream=True)),
        "--write-out", "%{http_version}", f"{gateway.url}/v1/chat/completions",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await curl.communicate()
    assert output.endswith(b"data: [DONE]\n\n2")


async def test_a_slow_stream_is_not_cut_by_a_fast_one(gateway: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.one_token_then_silence
    async with gateway.post(chat(stream=True)) as slow:
        await slow.content.readany()
        engine.behave = engine.answer
        begun = time.monotonic()
        assert (await gateway.call(chat()))[0] == 200
        assert time.monotonic() - begun < 5
        engine.release.set()
        assert (await slow.text()).endswith("[DONE]\n\n")
