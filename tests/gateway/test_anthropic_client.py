"""Anthropic's own client against a gateway and a simulated engine: what it returns, and the errors that it raises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
import pytest_asyncio
from anthropic import AsyncAnthropic

from tests.gateway.fleet import KEYS, MODEL, RunningGateway, changed, running_gateway, shared_configuration
from tests.gateway.simulated import simulated_engine

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATH = "/v1/messages"
ASKED: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 6,
    "system": "be brief",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    "extra_body": {"ignore_eos": True},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("anthropic")
    with simulated_engine(folder) as url:
        content = changed(shared_configuration(url), tenants__beta={"rpm_limit": 1})
        async with running_gateway(folder, content) as gateway:
            yield gateway


def client(gateway: RunningGateway, key: str = KEYS["alpha"], **options: Any) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0, **options)


async def test_messages_whole_and_streamed(shared: RunningGateway):
    whole = await client(shared).messages.create(**ASKED)
    assert (whole.usage.output_tokens, whole.stop_reason) == (6, "max_tokens")
    async with client(shared).messages.stream(**ASKED) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final = await stream.get_final_message()
    assert whole.content[0].type == "text"
    assert text == whole.content[0].text
    assert (final.usage.output_tokens, final.usage.input_tokens) == (6, whole.usage.input_tokens)


async def test_a_key_is_taken_in_either_header(shared: RunningGateway):
    body = {name: value for name, value in ASKED.items() if name != "extra_body"}
    for header in ({"X-Api-Key": KEYS["alpha"]}, {"Authorization": f"Bearer {KEYS['alpha']}"}):
        status, document, _ = await shared.call(body, tenant=None, path=PATH, headers=header)
        assert (status, document["type"]) == (200, "message")
    status, _, _ = await shared.call(body, tenant=None, path=PATH, headers={"X-Api-Key": "hw-nobody"})
    assert status == 401


async def test_models_are_listed(shared: RunningGateway):
    assert [model.id async for model in client(shared).models.list()] == [MODEL]
    assert (await client(shared).models.retrieve(MODEL)).id == MODEL


async def test_each_refusal_is_raised_as_the_error_that_callers_catch(shared: RunningGateway):
    async def refused(kind: type[anthropic.APIStatusError], key: str = KEYS["alpha"], **fields: Any) -> dict[str, Any]:
        with pytest.raises(kind) as raised:
            await client(shared, key).messages.create(**{**ASKED, **fields})
        body: Any = raised.value.body
        assert body["type"] == "error"
        assert body["request_id"] == raised.value.response.headers["x-request-id"]
        error: dict[str, Any] = body["error"]
        return error

    error = await refused(anthropic.AuthenticationError, "hw-nobody")
    assert (error["type"], error["code"]) == ("authentication_error", "unknown_key")
    error = await refused(anthropic.NotFoundError, model="nothing")
    assert (error["type"], error["code"], error["param"]) == ("not_found_error", "model_not_found", "model")
    error = await refused(anthropic.BadRequestError, max_tokens=-1)
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "bad_field", "max_tokens")
    await client(shared, KEYS["beta"]).messages.create(**ASKED)
    error = await refused(anthropic.RateLimitError, KEYS["beta"])
    assert (error["type"], error["code"]) == ("rate_limit_error", "rpm_limit")


async def test_a_body_without_max_tokens_has_the_models_default(shared: RunningGateway):
    body = {"model": MODEL, "messages": ASKED["messages"], "ignore_eos": True}
    status, document, headers = await shared.call(body, path=PATH)
    assert (status, document["usage"]["output_tokens"]) == (200, 50)
    assert headers["x-headworks-max-tokens"] == "50;reason=default"


async def test_a_method_that_is_not_served_is_refused_in_the_same_shape(shared: RunningGateway):
    async with shared.http.get(shared.url + PATH) as answer:
        document = await answer.json()
    assert (answer.status, document["type"], document["error"]["code"]) == (405, "error", "method_not_allowed")
