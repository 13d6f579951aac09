"""OpenAI's own client against a gateway and a simulated engine: what it returns, and the errors that it raises."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from tests.gateway.fleet import KEYS, MODEL, RunningGateway, changed, running_gateway, shared_configuration
from tests.gateway.simulated import simulated_engine

pytestmark = pytest.mark.asyncio(loop_scope="module")
HELLO: Any = [{"role": "user", "content": "hello"}]
LONG = {"ignore_eos": True}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("openai")
    with simulated_engine(folder) as url:
        content = changed(
            shared_configuration(url),
            tenants__beta={"rpm_limit": 1},
            tenants__alpha={"models": {MODEL: True}},
            models__other={"max_context_tokens": 100, "default_max_tokens": 5, "max_tokens": 10},
            pools__spare={"model": "other"},
        )
        async with running_gateway(folder, content) as gateway:
            yield gateway


def _cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def client(gateway: RunningGateway, key: str = KEYS["alpha"]) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0)


async def test_chat_whole_and_streamed(shared: RunningGateway):
    chat: Any = client(shared).chat.completions
    asked = {"model": MODEL, "messages": HELLO, "max_completion_tokens": 6, "extra_body": LONG}
    whole = await chat.create(**asked)
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 6
    stream = await chat.create(**asked, stream=True)
    chunks = [chunk async for chunk in stream]
    assert all(chunk.usage is None for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    stream = await chat.create(**asked, stream=True, stream_options={"include_usage": True})
    last = [chunk async for chunk in stream][-1]
    assert (last.choices, last.usage.completion_tokens) == ([], 6)


async def test_several_answers_and_a_form_that_is_obeyed(shared: RunningGateway):
    schema = {"type": "object", "properties": {"a": {"const": 1}}}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    chat: Any = client(shared).chat.completions
    answer = await chat.create(model=MODEL, messages=HELLO, n=3, max_tokens=20, response_format=form)
    assert [choice.message.content for choice in answer.choices] == ['{"a":1}'] * 3


@pytest.mark.parametrize("prompt", ["hello", ["hello", "world"], [5, 6, 7]])
async def test_completions_of_every_form_of_prompt(shared: RunningGateway, prompt):
    completions: Any = client(shared).completions
    answer = await completions.create(model=MODEL, prompt=prompt, max_tokens=3, extra_body=LONG)
    prompts = 2 if isinstance(prompt[0], str) and isinstance(prompt, list) else 1
    assert answer.usage is not None
    assert (len(answer.choices), answer.usage.completion_tokens) == (prompts, 3 * prompts)
    stream = await completions.create(model=MODEL, prompt=prompt, max_tokens=3, stream=True, extra_body=LONG)
    texts = dict.fromkeys(range(prompts), "")
    async for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert list(texts.values()) == [choice.text for choice in answer.choices]


async def test_responses_whole_and_streamed(shared: RunningGateway):
    responses: Any = client(shared).responses
    asked = {"model": MODEL, "input": "hello", "instructions": "be brief", "max_output_tokens": 6, "extra_body": LONG}
    whole = await responses.create(**asked)
    assert whole.usage is not None
    assert (whole.usage.output_tokens, whole.status) == (6, "incomplete")
    stream = await responses.create(**asked, stream=True)
    events = [event async for event in stream]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[0].type == "response.created"
    assert (events[-1].type, events[-1].response.usage) == ("response.incomplete", whole.usage)


async def test_responses_by_the_helper_for_streams(shared: RunningGateway):
    async with client(shared).responses.stream(model=MODEL, input="hello", max_output_tokens=300) as stream:
        final = await stream.get_final_response()
    assert final.output_text


async def test_embeddings_in_the_encoding_that_the_client_asks_for_by_itself(shared: RunningGateway):
    answer = await client(shared).embeddings.create(model=MODEL, input=["red wine", "red wines", "a blue car"])
    one, near, far = (row.embedding for row in answer.data)
    assert math.hypot(*one) == pytest.approx(1, abs=1e-6)
    assert _cosine(one, near) > 0.6 > _cosine(one, far)
    assert answer.usage.prompt_tokens > 3


async def test_models_listed_and_one_by_its_name(shared: RunningGateway):
    models = client(shared).models
    assert [model.id async for model in models.list()] == [MODEL]
    assert (await models.retrieve(MODEL)).id == MODEL
    for absent in ("other", "nothing/here"):
        with pytest.raises(openai.NotFoundError) as refused:
            await models.retrieve(absent)
        assert refused.value.code == "model_not_found"


async def test_each_refusal_is_raised_as_the_error_that_callers_catch(shared: RunningGateway):
    with pytest.raises(openai.AuthenticationError) as unknown:
        await client(shared, "hw-nobody").models.list()
    assert unknown.value.code == "unknown_key"
    alpha = client(shared).chat.completions
    with pytest.raises(openai.PermissionDeniedError) as denied:
        await alpha.create(model="other", messages=HELLO)
    assert (denied.value.code, denied.value.param) == ("model_not_allowed", "model")
    with pytest.raises(openai.NotFoundError):
        await alpha.create(model="nothing", messages=HELLO)
    with pytest.raises(openai.BadRequestError) as refused:
        await alpha.create(model=MODEL, messages=HELLO, max_tokens=1, max_completion_tokens=2)
    assert (refused.value.code, refused.value.type) == ("conflicting_max_tokens", "invalid_request_error")
    assert refused.value.request_id


async def test_a_limit_is_raised_with_the_time_to_wait(shared: RunningGateway):
    beta = client(shared, KEYS["beta"]).chat.completions
    await beta.create(model=MODEL, messages=HELLO, max_tokens=1)
    with pytest.raises(openai.RateLimitError) as refused:
        await beta.create(model=MODEL, messages=HELLO, max_tokens=1)
    assert refused.value.code == "rpm_limit"
    assert int(refused.value.response.headers["retry-after"]) >= 1
