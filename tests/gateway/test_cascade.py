"""A small model is asked first; its answer is given when it is good enough, and nothing of it where it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from tests.gateway.fleet import (
    DONE,
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    delta,
    event,
    running_gateway,
    shared_configuration,
    usage,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
TINY = "acme/tiny-1b"


class Fleet:
    """A small and a large engine, and the gateway before both."""

    gateway: RunningGateway

    def __init__(self, small: ScriptedEngine, large: ScriptedEngine) -> None:
        self.small, self.large = small, large

    async def cascade(self, *reasons: str, content: dict[str, Any] | None = None, **fields: Any) -> None:
        """Publish a route that asks the small model first, and escalates for these reasons."""
        cascade = {"pool": "tiny", "escalate_on": dict.fromkeys(reasons, True), **fields}
        await self.gateway.publish(changed(content or self.content(), routes__all__cascade=cascade))

    def content(self) -> dict[str, Any]:
        content = shared_configuration(self.large.url, pools=("main", "tiny"))
        content["models"][TINY] = {"max_context_tokens": 1000, "default_max_tokens": 50, "max_tokens": 100}
        content["pools"]["tiny"] = {"model": TINY}
        content["engines"]["small"] = {"url": self.small.url, "kind": "vllm", "pool": "tiny", "served_model": "tiny"}
        return content

    def asked(self) -> tuple[int, int]:
        """How often (the small engine, the large one) was asked."""
        return len(self.small.bodies), len(self.large.bodies)

    async def held(self) -> tuple[float, float]:
        """(KV tokens that are reserved, requests in flight)."""
        reserved = await self.gateway.metric("headworks_gateway_kv_reserved_tokens")
        return reserved, await self.gateway.metric("headworks_gateway_engine_requests")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    small, large = ScriptedEngine(), ScriptedEngine()
    await small.start()
    await large.start()
    fleet = Fleet(small, large)
    environment = {"HEADWORKS_GATEWAY_MAX_ANSWER_BYTES": str(2**20)}
    async with running_gateway(tmp_path_factory.mktemp("gateway"), fleet.content(), environment) as gateway:
        fleet.gateway = gateway
        yield fleet
    await small.stop()
    await large.stop()


@pytest.fixture
def fleet(running: Fleet) -> Fleet:
    for engine in (running.small, running.large):
        engine.behave = engine.answer
        engine.release.clear()
        engine.arrived.clear()
        engine.bodies.clear()
    running.small.usage, running.large.usage = usage(10, 3), usage(20, 5)
    return running


def saying(text: str, finish: str = "stop", **fields: Any) -> Any:
    """An engine's behaviour: this answer, streamed where that is asked for."""

    async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if body.get("stream"):
            last = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish, **fields}]}
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            counted = event({"choices": [], "usage": usage(10, 3)})
            await response.write(event(delta(text)) + event(last) + counted + DONE)
            return response
        choice = {"index": 0, "message": {"content": text}, "finish_reason": finish, **fields}
        return web.json_response({"choices": [choice], "usage": usage(10, 3)})

    return behave


def logprobs(probability_log: float) -> dict[str, Any]:
    return {"logprobs": {"content": [{"token": "x", "logprob": probability_log}]}}


async def test_a_good_answer_of_the_small_model_is_given_and_the_large_one_is_not_asked(fleet: Fleet):
    await fleet.cascade("length", "empty")
    fleet.small.behave = saying("It is 21.")
    status, answer, headers = await fleet.gateway.call(chat())
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "It is 21.")
    assert answer["usage"] == usage(10, 3)
    assert headers["x-headworks-cascade"] == "small"
    assert fleet.asked() == (1, 0)
    assert fleet.small.bodies[0]["model"] == "tiny"


async def test_a_good_stream_is_replayed_as_a_stream(fleet: Fleet):
    await fleet.cascade("length", "empty")
    fleet.small.behave = saying("It is 21.")
    async with fleet.gateway.post(chat(stream=True)) as answer:
        body = await answer.read()
        assert answer.content_type == "text/event-stream"
        assert answer.headers["x-headworks-cascade"] == "small"
    assert body.count(b"It is 21.") == 1
    assert body.endswith(DONE)
    # It was forced on, and is hidden from who did not ask.
    assert b"usage" not in body
    assert fleet.asked() == (1, 0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("reason", "text", "finish"),
    [("length", "It is", "length"), ("empty", "", "stop"), ("refusal", "no", "content_filter")],
)
async def test_of_an_answer_that_is_not_good_enough_nothing_is_seen(
    fleet: Fleet, reason: str, text: str, finish: str, stream: bool
):
    await fleet.cascade("length", "empty", "refusal")
    fleet.small.behave = saying(f"{text}", finish)
    fleet.large.behave = saying("the large one")
    async with fleet.gateway.post(chat(stream=stream)) as answer:
        body = await answer.text()
        assert answer.headers["x-headworks-cascade"] == f"escalated;reason={reason}"
    assert "the large one" in body
    assert "It is" not in body
    assert fleet.asked() == (1, 1)


async def test_json_that_was_asked_for_must_be_json(fleet: Fleet):
    await fleet.cascade("invalid_json")
    fleet.small.behave = saying("{oops")
    _, _, headers = await fleet.gateway.call(chat(response_format={"type": "json_object"}))
    assert headers["x-headworks-cascade"] == "escalated;reason=invalid_json"
    _, _, headers = await fleet.gateway.call(chat())
    assert headers["x-headworks-cascade"] == "small"


async def test_an_answer_that_is_as_long_as_its_client_asked_for_is_given(fleet: Fleet):
    await fleet.cascade("length")
    fleet.small.behave = saying("yes", "length")
    _, _, headers = await fleet.gateway.call(chat(max_tokens=1))
    assert headers["x-headworks-cascade"] == "small"
    # More than the small model may write was asked for: there it was cut.
    _, _, headers = await fleet.gateway.call(chat(max_tokens=300))
    assert fleet.small.bodies[-1]["max_tokens"] == 100
    assert headers["x-headworks-cascade"] == "escalated;reason=length"


@pytest.mark.parametrize("stream", [False, True])
async def test_confidence_is_asked_of_the_engine_and_hidden_from_the_client(fleet: Fleet, stream: bool):
    await fleet.cascade("low_confidence", confidence_permille=700)
    fleet.small.behave = saying("sure", **logprobs(-0.1))
    async with fleet.gateway.post(chat(stream=stream)) as answer:
        body = await answer.text()
        assert answer.headers["x-headworks-cascade"] == "small"
    assert fleet.small.bodies[0]["logprobs"] is True
    assert '"logprob"' not in body
    fleet.small.behave = saying("unsure", **logprobs(-1.0))
    async with fleet.gateway.post(chat(stream=stream)) as answer:
        assert answer.headers["x-headworks-cascade"] == "escalated;reason=low_confidence"
    assert "logprobs" not in fleet.large.bodies[0]


async def test_completions_are_asked_for_theirs_in_their_own_way(fleet: Fleet):
    await fleet.cascade("low_confidence", confidence_permille=700)

    async def sure(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        choice = {"index": 0, "text": "21", "finish_reason": "stop", "logprobs": {"token_logprobs": [-0.1]}}
        return web.json_response({"choices": [choice], "usage": usage(10, 3)})

    fleet.small.behave = sure
    prompt = {"model": MODEL, "prompt": "hello"}
    _, answer, headers = await fleet.gateway.call(prompt, path="/v1/completions")
    assert headers["x-headworks-cascade"] == "small"
    assert fleet.small.bodies[0]["logprobs"] == 1
    assert answer["choices"][0]["logprobs"] is None
    _, answer, _ = await fleet.gateway.call({**prompt, "logprobs": 0}, path="/v1/completions")
    assert (fleet.small.bodies[1]["logprobs"], answer["choices"][0]["logprobs"]) == (0, {"token_logprobs": [-0.1]})


async def test_a_client_that_asks_for_logprobs_gets_them(fleet: Fleet):
    await fleet.cascade("low_confidence", confidence_permille=700)
    fleet.small.behave = saying("sure", **logprobs(-0.1))
    _, answer, _ = await fleet.gateway.call(chat(logprobs=True))
    assert answer["choices"][0]["logprobs"]["content"][0]["logprob"] == -0.1


async def test_a_failure_of_the_small_engine_escalates_where_the_route_says_so(fleet: Fleet):
    for behaviour in (fleet.small.failing(500), fleet.small.failing(400), fleet.small.cut):
        await fleet.cascade("engine_failed")
        fleet.small.behave = behaviour
        status, _, headers = await fleet.gateway.call(chat())
        assert (status, headers["x-headworks-cascade"]) == (200, "escalated;reason=engine_failed")
    await fleet.cascade("empty")
    fleet.small.behave = fleet.small.failing(500)
    assert await fleet.gateway.refusal(chat()) == (502, "engine_error")


async def test_a_stream_that_breaks_off_in_the_middle_is_given_by_the_large_model_from_the_start(fleet: Fleet):
    await fleet.cascade("engine_failed")
    fleet.small.behave = fleet.small.one_token_then_cut
    async with fleet.gateway.post(chat(stream=True)) as answer:
        body = await answer.read()
    assert b"first" not in body
    assert body.endswith(DONE)
    assert fleet.asked() == (1, 1)


async def test_a_small_pool_without_a_place_keeps_nobody_waiting_for_the_large_one(fleet: Fleet):
    content = changed(fleet.content(), engines__small__cordoned=True)
    await fleet.cascade("empty", content=content)
    status, _, headers = await fleet.gateway.call(chat())
    assert (status, headers["x-headworks-cascade"]) == (200, "escalated;reason=no_place")
    assert fleet.asked() == (0, 1)


async def test_a_prompt_that_is_too_long_for_it_is_not_asked_of_the_small_model(fleet: Fleet):
    await fleet.cascade("empty", max_prompt_tokens=100)
    _, _, headers = await fleet.gateway.call(chat("x" * 1_000))
    assert "x-headworks-cascade" not in headers
    await fleet.cascade("empty")
    # 1,125 tokens: more than its context, and less than that of the large one.
    _, _, headers = await fleet.gateway.call(chat("x" * 4_500))
    assert "x-headworks-cascade" not in headers
    assert fleet.asked() == (0, 2)


async def test_only_chats_and_completions_cascade(fleet: Fleet):
    await fleet.cascade("empty")
    fleet.small.behave = saying("x")
    await fleet.gateway.call({"model": MODEL, "prompt": "hello"}, path="/v1/completions")
    assert fleet.asked() == (1, 0)
    async with fleet.gateway.post({"model": MODEL, "input": "hello"}, path="/v1/responses"):
        pass
    assert len(fleet.small.bodies) == 1


async def test_the_quota_covers_both_calls_and_is_charged_for_both(fleet: Fleet):
    content = changed(fleet.content(), tenants__alpha={"tpm_limit": 1_000_000})
    await fleet.cascade("empty", content=content)
    fleet.small.behave = saying("")
    before = await fleet.gateway.remaining_tokens()
    _, answer, _ = await fleet.gateway.call(chat())
    assert answer["usage"] == usage(20, 5)
    spent = before - await fleet.gateway.remaining_tokens()
    # The bucket refills meanwhile.
    assert spent <= 10 + 3 + 20 + 5
    small = await fleet.gateway.metric("headworks_gateway_generation_tokens_total", pool="tiny")
    assert small >= 3
    assert await fleet.gateway.metric("headworks_gateway_cascades_total", pool="tiny", reason="empty") >= 1


async def test_a_limit_that_can_never_hold_both_calls_is_for_the_large_one_alone(fleet: Fleet):
    content = changed(fleet.content(), tenants__alpha={"tpm_limit": 80})
    await fleet.cascade("empty", content=content)
    status, _, headers = await fleet.gateway.call(chat(max_tokens=50))
    assert status == 200
    assert "x-headworks-cascade" not in headers
    assert fleet.asked() == (0, 1)


async def test_a_session_pays_for_both_at_the_prices_of_each(fleet: Fleet):
    content = changed(
        fleet.content(),
        tenants__alpha={"session_limits": "agents"},
        session_limits__agents={"max_cost_micros": 1_000},
    )
    content["models"][TINY] |= {"prompt_token_cost_micros": 1, "output_token_cost_micros": 1}
    content["models"][MODEL] |= {"prompt_token_cost_micros": 10, "output_token_cost_micros": 10}
    await fleet.cascade("empty", content=content)
    mine = {"X-Session-Id": "cascading"}
    fleet.small.behave = saying("")
    await fleet.gateway.call(chat(max_tokens=20), headers=mine)
    fleet.small.behave = saying("x")
    await fleet.gateway.call(chat(max_tokens=20), headers=mine)
    # (10 + 3) of the small one, (20 + 5) × 10 of the large one; then (10 + 3) of the small one alone.
    said = (await _refusal_of(fleet, mine))["message"]
    assert "has used 276 of 1000 micros" in said


async def test_a_session_without_room_for_both_calls_is_for_the_large_one_alone(fleet: Fleet):
    content = changed(
        fleet.content(), tenants__alpha={"session_limits": "agents"}, session_limits__agents={"max_tokens": 60}
    )
    await fleet.cascade("empty", content=content)
    mine = {"X-Session-Id": "small"}
    _, _, headers = await fleet.gateway.call(chat(max_tokens=40), headers=mine)
    assert "x-headworks-cascade" not in headers
    fleet.small.behave = saying("x")
    _, _, headers = await fleet.gateway.call(chat(max_tokens=2), headers={"X-Session-Id": "smaller"})
    assert headers["x-headworks-cascade"] == "small"


async def _refusal_of(fleet: Fleet, headers: dict[str, str]) -> dict[str, Any]:
    _, document, _ = await fleet.gateway.call(chat("x" * 4_000), headers=headers)
    return dict(document["error"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_while_the_small_model_works_frees_everything(fleet: Fleet, stream: bool):
    await fleet.cascade("empty")
    fleet.small.behave = fleet.small.silence
    call = asyncio.ensure_future(fleet.gateway.call(chat(stream=stream)))
    await asyncio.wait_for(fleet.small.arrived.wait(), 10)
    assert (await fleet.held())[1] == 1
    call.cancel()
    await fleet.gateway.until_left(fleet.small)
    await fleet.gateway.until(fleet.held, (0, 0), "all places to be free")
    assert fleet.asked() == (1, 0)


async def test_a_client_that_leaves_while_the_large_model_works_frees_everything(fleet: Fleet):
    await fleet.cascade("empty")
    fleet.small.behave, fleet.large.behave = saying(""), fleet.large.silence
    call = asyncio.ensure_future(fleet.gateway.call(chat()))
    await asyncio.wait_for(fleet.large.arrived.wait(), 10)
    # The small one's place was given back before the large one was asked.
    assert (await fleet.held())[1] == 1
    call.cancel()
    await fleet.gateway.until_left(fleet.large)
    await fleet.gateway.until(fleet.held, (0, 0), "all places to be free")


async def test_the_deadline_holds_for_both_calls_together(fleet: Fleet):
    await fleet.cascade("engine_failed")
    fleet.small.behave = fleet.small.silence
    headers = {"X-Request-Timeout-Ms": "200"}
    assert await fleet.gateway.refusal(chat(), headers=headers) == (504, "deadline_exceeded")
    assert fleet.asked() == (1, 0)
    await fleet.gateway.until(fleet.held, (0, 0), "all places to be free")


async def test_an_answer_that_is_larger_than_a_gateway_holds_is_a_failure(fleet: Fleet):
    await fleet.cascade("engine_failed")
    fleet.small.behave = fleet.small.flood
    async with fleet.gateway.post(chat(stream=True)) as answer:
        body = await answer.read()
        assert answer.headers["x-headworks-cascade"] == "escalated;reason=engine_failed"
    assert body.endswith(DONE)


async def test_the_decision_tells_what_the_small_model_used_and_how_sure_it_was(fleet: Fleet):
    await fleet.cascade("low_confidence", confidence_permille=700)
    fleet.small.behave = saying("unsure", **logprobs(-1.0))

    async def told() -> bool:
        await fleet.gateway.call(chat())
        notes = [stage for decision in fleet.gateway.control.decisions for stage in decision["stages"]]
        numbers = [note["numbers"] for note in notes if note["stage"] == "ask_small_first" and "numbers" in note]
        return any((each.get("small_output_tokens"), each.get("confidence_permille")) == (3, 367) for each in numbers)

    await fleet.gateway.until(told, True, "a decision that tells of the cascade")


async def test_a_stream_that_a_heartbeat_has_begun_is_answered_by_the_small_model_all_the_same(
    fleet: Fleet, tmp_path: Path
):
    content = changed(fleet.content(), routes__all__cascade={"pool": "tiny", "escalate_on": {"empty": True}})

    async def slow(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await fleet.small.release.wait()
        response: web.StreamResponse = await saying("It is 21.")(request, body)
        return response

    fleet.small.behave = slow
    environment = {"HEADWORKS_GATEWAY_HEARTBEAT_SECONDS": "0.1"}
    async with running_gateway(tmp_path, content, environment) as gateway, gateway.post(chat(stream=True)) as answer:
        # The head is sent with the first comment, before anybody knows which model will answer.
        assert "x-headworks-cascade" not in answer.headers
        assert (await answer.content.readany()).startswith(b":")
        fleet.small.release.set()
        body = await answer.read()
    assert b"It is 21." in body
    assert body.endswith(DONE)
