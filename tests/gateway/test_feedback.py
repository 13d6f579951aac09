"""What clients say of answers: of their own alone, once, and the control plane hears of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.feedback import Answered, FeedbackEvents, FeedbackRate, RecentRequests
from gateway.refusals import Refused
from tests.gateway.caches.support import feedback
from tests.gateway.fleet import (
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    running_gateway,
    shared_configuration,
)
from wire.messages import Event

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATH = "/v1/feedback"
_numbers = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(engine: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    environment = {"HEADWORKS_GATEWAY_FEEDBACK_REQUESTS": "20"}
    async with running_gateway(
        tmp_path_factory.mktemp("gateway"), shared_configuration(engine.url), environment
    ) as gateway:
        yield gateway


async def answered_id(gateway: RunningGateway, tenant: str = "alpha") -> str:
    """The id of a request that was answered."""
    _, _, headers = await gateway.call(chat(), tenant)
    # Its ending is done before the next request to this gateway is read.
    await gateway.ready_status()
    return headers["x-request-id"]


async def events_of(gateway: RunningGateway, request_id: str, count: int) -> list[dict[str, Any]]:
    """What the control plane was told of a request, once it is as much."""

    def told() -> list[dict[str, Any]]:
        return [event for event in gateway.control.events if event["subject"] == request_id]

    async def number() -> int:
        return len(told())

    await gateway.until(number, count, f"{count} events of {request_id}")
    return told()


async def test_what_a_client_says_reaches_the_control_plane_once(gateway: RunningGateway):
    request_id = await answered_id(gateway)
    told = {"request_id": request_id, "verdict": "wrong", "cache": "none", "effect": "none"}
    for _ in range(3):
        assert await feedback(gateway, request_id, "wrong", comment="the price is old") == (200, told)
    assert (await feedback(gateway, request_id, "liked"))[0] == 200
    wrong, liked = await events_of(gateway, request_id, 2)
    assert (wrong["kind"], wrong["severity"], liked["kind"]) == ("feedback_wrong", "info", "feedback_liked")
    assert wrong["detail"] == f"tenant alpha, model {MODEL}, answered by an engine: the price is old"
    assert "node" not in wrong
    labels = {"tenant": "alpha", "model": MODEL, "cache": "none", "verdict": "wrong"}
    assert await gateway.metric("headworks_gateway_feedback_total", **labels) >= 1
    assert await gateway.metric("headworks_gateway_cache_wrong_hits_total") == 0


async def test_nobody_speaks_of_another_tenants_request(gateway: RunningGateway):
    request_id = await answered_id(gateway)
    status, document = await feedback(gateway, request_id, "wrong", tenant="beta")
    assert (status, document["error"]["code"]) == (404, "unknown_request")
    assert (await feedback(gateway, request_id, "wrong"))[0] == 200


async def test_two_tenants_may_use_one_id(gateway: RunningGateway):
    name = f"same-{next(_numbers)}"
    for tenant in ("alpha", "beta"):
        await gateway.call(chat(), tenant, headers={"X-Request-Id": name})
    await gateway.ready_status()
    for tenant in ("alpha", "beta"):
        assert (await feedback(gateway, name, "liked", tenant=tenant))[0] == 200
    details = sorted(event["detail"] for event in await events_of(gateway, name, 2))
    assert [detail.split(",")[0] for detail in details] == ["tenant alpha", "tenant beta"]


async def test_only_the_last_requests_are_remembered(gateway: RunningGateway):
    first = await answered_id(gateway)
    for _ in range(20):
        last = await answered_id(gateway)
    status, document = await feedback(gateway, first, "liked")
    assert (status, document["error"]["code"], document["error"]["param"]) == (404, "unknown_request", "request_id")
    assert (await feedback(gateway, last, "liked"))[0] == 200


async def test_a_request_that_was_refused_has_no_answer_to_speak_of(gateway: RunningGateway):
    await gateway.refusal(chat(max_tokens=-1), headers={"X-Request-Id": "refused-1"})
    assert (await feedback(gateway, "refused-1", "wrong"))[0] == 404


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{", "bad_json", None),
        (b"\xff", "bad_json", None),
        (b"[]", "bad_json", None),
        ({"verdict": "wrong"}, "bad_field", "request_id"),
        ({"request_id": "r", "verdict": "awful"}, "bad_field", "verdict"),
        ({"request_id": "", "verdict": "wrong"}, "bad_field", "request_id"),
        ({"request_id": "r" * 129, "verdict": "wrong"}, "bad_field", "request_id"),
        ({"request_id": "r", "verdict": "wrong", "comment": "x" * 1001}, "bad_field", "comment"),
        ({"request_id": "r", "verdict": "wrong", "answer": "x"}, "bad_field", None),
    ],
)
async def test_what_is_no_feedback_is_refused_by_name(gateway: RunningGateway, body: Any, code: str, param: str | None):
    status, document, _ = await gateway.call(body, path=PATH)
    error = document["error"]
    assert (status, error["code"], error["param"]) == (400, code, param)


async def test_a_tenant_that_sends_too_much_is_told_to_wait_and_the_others_are_not(
    engine: ScriptedEngine, tmp_path: Path
):
    few = {"HEADWORKS_GATEWAY_FEEDBACK_PER_MINUTE": "3"}
    async with running_gateway(tmp_path, shared_configuration(engine.url), few) as strict:
        for _ in range(3):
            assert (await feedback(strict, "nothing", "wrong"))[0] == 404
        body = {"request_id": "nothing", "verdict": "wrong"}
        assert await strict.refusal(body, path=PATH) == (429, "feedback_limit")
        _, _, headers = await strict.call(body, path=PATH)
        assert 1 <= int(headers["retry-after"]) <= 25
        assert (await feedback(strict, "nothing", "wrong", tenant="beta"))[0] == 404
        assert (await strict.call(chat()))[0] == 200
        assert await strict.metric("headworks_gateway_requests_total", reason="feedback_limit") == 2


async def test_a_rate_comes_back_evenly_and_is_kept_of_no_tenant_that_is_gone():
    now_ms = 0
    rate = FeedbackRate(2, lambda: now_ms)
    for _ in range(2):
        rate.take("alpha", {"alpha"})
    with pytest.raises(Refused, match="2 times a minute") as refused:
        rate.take("alpha", {"alpha"})
    assert refused.value.retry_after_seconds == 30
    now_ms = 30_000
    rate.take("alpha", {"alpha"})
    with pytest.raises(Refused):
        rate.take("alpha", {"alpha"})
    rate.take("beta", {"beta"})
    assert len(rate) == 1


async def test_feedback_needs_a_key_and_is_posted(gateway: RunningGateway):
    body = {"request_id": "r", "verdict": "wrong"}
    assert await gateway.refusal(body, tenant=None, path=PATH) == (401, "missing_key")
    assert await gateway.refusal(body, tenant="blocked", path=PATH) == (401, "key_blocked")
    async with gateway.http.get(f"{gateway.url}{PATH}") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (405, "method_not_allowed")


async def test_a_client_that_leaves_within_its_body_hurts_nobody(gateway: RunningGateway):
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /v1/feedback HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer hw-alpha-secret\r\n")
    writer.write(b"Content-Length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    request_id = await answered_id(gateway)
    assert (await feedback(gateway, request_id, "approved"))[0] == 200


async def test_reports_wait_while_the_control_plane_is_away(gateway: RunningGateway):
    request_id = await answered_id(gateway)
    await gateway.control.stop()
    assert (await feedback(gateway, request_id, "wrong"))[0] == 200
    await gateway.control.start()
    assert len(await events_of(gateway, request_id, 1)) == 1


async def test_a_model_that_is_gone_meanwhile_hurts_nobody(gateway: RunningGateway):
    request_id = await answered_id(gateway)
    content = gateway.control.content
    await gateway.publish(changed(content, models={}, pools={}, engines={}, routes={}))
    assert (await feedback(gateway, request_id, "verified"))[0] == 200
    await gateway.publish(content)


async def test_the_newest_reports_stay_where_too_many_wait():
    dropped = []
    events = FeedbackEvents(lambda: dropped.append(1))
    for number in range(2_005):
        events.put(Event(f"event-{number:06}", 0, "feedback_wrong", f"r-{number}", "info", "x"))
    assert (len(events), len(dropped)) == (2_000, 5)
    assert [event.subject for event in events.take(2)] == ["r-5", "r-6"]
    assert len(events) == 1_998


async def test_an_id_that_is_sent_again_stands_for_the_later_request():
    recent = RecentRequests(2)
    first, second, third = Answered("m"), Answered("m"), Answered("m")
    recent.note("alpha", b"1", first)
    recent.note("alpha", b"2", second)
    recent.note("alpha", b"1", third)
    recent.note("beta", b"1", first)
    assert recent.find("alpha", b"1") is third
    assert recent.find("alpha", b"2") is None
    assert len(recent) == 2
