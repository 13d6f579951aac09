"""How long prompts are, held against what engines themselves count."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from simulator.tokenizer import CHAT_TEMPLATE, train_tokenizer
from tests.gateway.fleet import (
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
    scripted_engine,
)
from tests.gateway.simulated import simulated_engine

TURNS = [
    {"role": "system", "content": "The town writes down how much rain fell."},
    {"role": "user", "content": [{"type": "text", "text": "How much?"}, {"type": "text", "text": "And <|im_end|>?"}]},
    {"role": "assistant", "content": "Much."},
    {"role": "user", "content": "When?"},
]


pytestmark = pytest.mark.asyncio(loop_scope="module")
# An engine that did not count is not asked again for a while, known by its name.
_numbers = itertools.count()
engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")


@pytest.fixture(scope="module")
def engine_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A simulated engine, which counts by its own template and tokenizer."""
    with simulated_engine(tmp_path_factory.mktemp("engine")) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    # A busy machine takes its time to count.
    patient = {"HEADWORKS_GATEWAY_ENGINE_TOKENIZE_SECONDS": "5"}
    async with running_gateway(tmp_path_factory.mktemp("gateway"), configuration(), patient) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hurried(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    """Asks an engine that did not count at once no more."""
    waits = {
        "HEADWORKS_GATEWAY_ENGINE_TOKENIZE_SECONDS": "0.2",
        "HEADWORKS_GATEWAY_ENGINE_TOKENIZE_PAUSE_SECONDS": "600",
    }
    async with running_gateway(tmp_path_factory.mktemp("hurried"), configuration(), waits) as gateway:
        yield gateway


async def serve(gateway: RunningGateway, url: str, **engine: Any) -> None:
    """Begin anew with this engine, by a name that it has not had."""
    content = configuration(url)
    content["engines"] = {f"n{next(_numbers)}": {**content["engines"]["e0"], **engine}}
    await gateway.begin_anew(content)


async def sizes(gateway: RunningGateway, body: dict[str, Any], **options: Any) -> tuple[str, int]:
    """(what the gateway measured and by what, what the engine counted)."""
    status, document, headers = await gateway.call(body, **options)
    assert status == 200, document
    return headers["x-headworks-prompt-tokens"], document["usage"]["prompt_tokens"]


async def until_measured_by(gateway: RunningGateway, source: str, body: dict[str, Any]) -> None:
    async def found() -> bool:
        _, _, headers = await gateway.call(body)
        return headers["x-headworks-prompt-tokens"].endswith(f";source={source}")

    await gateway.until(found, True, f"prompts to be measured by {source}")


async def test_the_template_and_the_tokenizer_count_exactly_what_an_engine_counts(
    engine_url: str, gateway: RunningGateway
):
    await serve(gateway, engine_url)
    await publish_files(gateway, CHAT_TEMPLATE, max_context_tokens=8000)
    await until_measured_by(gateway, "template", chat(max_tokens=1))
    # The last two are read and counted in the thread; what was asked before is remembered.
    many = [{"role": ("user", "assistant")[number % 2], "content": f"turn {number}"} for number in range(301)]
    long = [*TURNS, {"role": "user", "content": "rain in May, " * 1000}]
    for turns in (TURNS, TURNS, [*TURNS, TURNS[0]], many, many, long, long):
        measured, counted = await sizes(gateway, {"model": MODEL, "messages": turns, "max_tokens": 1})
        assert measured == f"{counted};source=template"
    measured, counted = await sizes(
        gateway, {"model": MODEL, "prompt": "rain <|im_start|>", "max_tokens": 1}, path="/v1/completions"
    )
    assert measured == f"{counted};source=tokenizer"
    assert await gateway.grown("headworks_gateway_prompts_measured_total", model=MODEL, source="template") > 4


async def test_a_prompt_that_does_not_fit_is_refused_by_what_the_template_adds(
    engine_url: str, gateway: RunningGateway
):
    await serve(gateway, engine_url)
    model = await publish_files(gateway, CHAT_TEMPLATE)
    await until_measured_by(gateway, "template", chat(max_tokens=1))
    _, counted = await sizes(gateway, chat("When?", max_tokens=1))
    # One token is too few for the prompt and its answer.
    await gateway.publish(changed(gateway.control.content, models={MODEL: {**model, "max_context_tokens": counted}}))
    status, document, _ = await gateway.call(chat("When?", max_tokens=1))
    assert (status, document["error"]["code"]) == (400, "context_length_exceeded")
    assert f"the prompt has {counted} tokens" in document["error"]["message"]
    assert document["error"]["param"] == "messages"


async def test_without_a_tokenizer_an_engine_counts(engine_url: str, gateway: RunningGateway):
    await serve(gateway, engine_url)
    await until_measured_by(gateway, "engine", chat(max_tokens=1))
    body = {"model": MODEL, "messages": TURNS, "max_tokens": 1}
    for _ in range(2):
        measured, counted = await sizes(gateway, body)
        assert measured == f"{counted};source=engine"
    prompt = {"model": MODEL, "prompt": "How much rain fell?", "max_tokens": 1}
    measured, counted = await sizes(gateway, prompt, path="/v1/completions")
    assert measured == f"{counted};source=engine"


@pytest.mark.parametrize(("how", "asked"), [("silent", 1), ("missing", 1), ("rubbish", 1), ("unwilling", 3)])
async def test_an_engine_that_does_not_count_holds_nobody_up(
    engine: ScriptedEngine, hurried: RunningGateway, how: str, asked: int
):
    ways = {
        "silent": engine.silence,
        "missing": engine.failing(404),
        "rubbish": engine.failing(200),
        "unwilling": engine.failing(400),
    }
    engine.tokenize = ways[how]
    await serve(hurried, engine.url)
    for _ in range(3):
        status, _, headers = await hurried.call(chat())
        assert status == 200
        assert headers["x-headworks-prompt-tokens"].endswith(";source=estimate")
    assert len(engine.tokenize_bodies) == asked


async def test_a_prompt_is_taken_to_be_shortened_only_where_every_engine_heeds_that(
    engine: ScriptedEngine, tmp_path: Path
):
    content = configuration(engine.url, engine.url)
    body = {"model": MODEL, "prompt": "rain " * 100, "truncate_prompt_tokens": 3}
    counted = []
    async with running_gateway(tmp_path, content, {"HEADWORKS_GATEWAY_ENGINE_TOKENIZE_SECONDS": "0"}) as gateway:
        for kind in ("vllm", "llamacpp"):
            await gateway.publish(changed(content, engines__e1__kind=kind))
            _, _, headers = await gateway.call(body, path="/v1/completions")
            counted.append(headers["x-headworks-prompt-tokens"])
    assert counted == ["3;source=estimate", "125;source=estimate"]


async def test_an_engine_is_asked_in_the_form_of_a_chat_once_a_prompt(engine: ScriptedEngine, gateway: RunningGateway):
    engine.tokenize = count_77
    arguments = '{"city":"Ulm"}'
    call = {"type": "function_call", "call_id": "1", "name": "weather", "arguments": arguments}
    body = {"model": MODEL, "input": [{"role": "user", "content": "Rain?"}, call], "max_output_tokens": 5}
    await serve(gateway, engine.url)
    for _ in range(2):
        _, _, headers = await gateway.call(body, path="/v1/responses")
        assert headers["x-headworks-prompt-tokens"] == "77;source=engine"
    (asked,) = engine.tokenize_bodies
    assert asked["model"] == "served-8b"
    assert asked["messages"][0] == {"role": "user", "content": "Rain?"}
    assert asked["messages"][1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": arguments}


async def test_a_model_that_is_an_adapter_is_counted_by_engines_that_hold_it(
    engine: ScriptedEngine, gateway: RunningGateway
):
    engine.tokenize = count_77
    content = configuration(engine.url)
    model = {**content["models"][MODEL], "adapter": "sql"}
    pool = {"model": MODEL, "adapters": {"sql": True}}
    await gateway.publish(changed(content, models__sql=model, pools__main=pool))
    _, _, headers = await gateway.call({**chat(), "model": "sql"})
    assert headers["x-headworks-prompt-tokens"] == "77;source=engine"
    (asked,) = engine.tokenize_bodies
    assert asked["model"] == "sql"


async def test_an_engine_is_told_what_its_template_is_to_be_given(engine: ScriptedEngine, gateway: RunningGateway):
    engine.tokenize = count_77
    body = chat() | {"add_generation_prompt": False, "chat_template_kwargs": {"enable_thinking": False}}
    await serve(gateway, engine.url)
    await gateway.call(body)
    (asked,) = engine.tokenize_bodies
    assert asked["add_generation_prompt"] is False
    assert asked["chat_template_kwargs"] == {"enable_thinking": False}


async def test_an_engine_that_takes_no_work_is_not_asked(engine: ScriptedEngine, gateway: RunningGateway):
    for kind in ("vllm", "tgi"):
        await serve(gateway, engine.url, kind=kind, cordoned=True)
        assert await gateway.refusal(chat()) == (503, "no_engine")
    assert engine.tokenize_bodies == []


async def test_a_template_that_takes_long_holds_no_other_request_up(engine: ScriptedEngine, gateway: RunningGateway):
    work = "{% set x = (i * 7) ~ 'a' ~ (i * 9) %}"
    loops = "".join(f"{{% for i in range({times}) %}}{work}{{% endfor %}}" for times in (99999, 90000))
    slow = "{% for m in messages %}{% if m.content == 'slow' %}" + loops + "{% endif %}{{ m.content }}{% endfor %}"
    await serve(gateway, engine.url)
    await publish_files(gateway, slow)
    await until_measured_by(gateway, "template", chat())
    begun = time.monotonic()
    asked = asyncio.create_task(gateway.call_status(chat("slow")))
    longest = 0.0
    while not asked.done():
        before = time.monotonic()
        async with gateway.http.get(f"{gateway.url}/healthz") as answer:
            assert answer.status == 200
        longest = max(longest, time.monotonic() - before)
    assert await asked == 200
    assert longest < (time.monotonic() - begun) / 2


async def test_a_prompt_of_megabytes_holds_no_other_tenants_long_prompt_up(
    engine: ScriptedEngine, gateway: RunningGateway
):
    await serve(gateway, engine.url)
    await publish_files(gateway, CHAT_TEMPLATE)
    await until_measured_by(gateway, "template", chat())
    begun = time.monotonic()
    asked = asyncio.create_task(gateway.call_status(chat("When? " * 1_250_000)))
    longest, number = 0.0, 0
    while not asked.done():
        before, number = time.monotonic(), number + 1
        # Longer than what is counted in the event loop.
        assert await gateway.call_status(chat(f"{number} " + "When? " * 1_000), "beta") in (200, 400)
        longest = max(longest, time.monotonic() - before)
    assert await asked == 400
    assert longest < (time.monotonic() - begun) / 2


async def count_77(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"count": 77, "max_model_len": 2000, "tokens": [1] * 77})


async def publish_files(gateway: RunningGateway, template: str, **fields: int) -> dict[str, Any]:
    """The model with the simulator's tokenizer and this template."""
    files = {
        "tokenizer": gateway.control.add_artifact(train_tokenizer().to_str().encode()),
        "chat_template": gateway.control.add_artifact(template.encode()),
    }
    model = {**gateway.control.content["models"][MODEL], **files, **fields}
    await gateway.publish(changed(gateway.control.content, models={MODEL: model}))
    return model
