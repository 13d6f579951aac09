from __future__ import annotations

from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from gpu_agent.engines.discovery import Discovery
from gpu_agent.engines.pages import EnginePages
from tests.gpu_agent.fake_engine import fake_engine
from tests.services import free_port
from tests.wire.engine_pages.reading import page_of
from wire.messages import FoundEngine


async def found_at(pages, ports, configured=()):
    discovery = Discovery(pages, ports)
    await discovery.look(configured)
    return discovery.found(configured)


@pytest.fixture
async def pages():
    pages = EnginePages(timeout_seconds=2, limit_bytes=100_000)
    yield pages
    await pages.close()


def port(engine):
    return urlsplit(engine.url).port


def models(owner: str) -> tuple[int, bytes]:
    return 200, b'{"object":"list","data":[{"id":"llama","object":"model","owned_by":"%b"}]}' % owner.encode()


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({"/v1/models": models("vllm"), "/version": (200, b'{"version":"0.32.0"}')}, ("vllm", "0.32.0", ["llama"])),
        ({"/v1/models": models("sglang")}, ("sglang", "", ["llama"])),
        ({"/v1/models": models("llamacpp")}, ("llamacpp", "", ["llama"])),
        ({"/v1/models": models("tensorrt_llm"), "/version": (200, b'{"version":"1.1"}')}, ("trtllm", "1.1", ["llama"])),
        ({"/v1/models": models("library"), "/api/version": (200, b'{"version":"0.9"}')}, ("ollama", "0.9", ["llama"])),
        ({"/v2": (200, b'{"name":"triton","version":"2.61.0"}')}, ("triton", "2.61.0", [])),
        (
            {
                "/v1/models": models("m/x"),
                "/info": (200, b'{"model_id":"m/x","max_concurrent_requests":8,"version":"3"}'),
            },
            ("tgi", "3", ["m/x"]),
        ),
        ({"/v1/models": (401, b""), "/metrics": (200, page_of("vllm-0.32.0"))}, ("vllm", "", [])),
    ],
)
async def test_an_engine_is_known_by_what_it_answers(engine, pages, answers, found):
    engine.pages = answers
    kind, version, names = found
    (seen,) = await found_at(pages, [port(engine)])
    assert (seen.url, seen.kind, seen.version or "", seen.models) == (engine.url, kind, version, names)


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/v1/models": models("a proxy of several"), "/metrics": (200, b"process_start_time_seconds 1\n")},
        {"/v1/models": (200, b'{"data":7}'), "/v2": (200, b'{"name":"other"}'), "/info": (200, b"[]")},
        {"/v1/models": (200, b"<html>"), "/metrics": (500, b"vllm:x 1\n")},
        {"/metrics": (200, b"# HELP vllm:x\nother_vllm:x 1\n")},
        {"/metrics": (200, b'vllm:num_requests_running{node="a"} 1\nheadworks_engine_up{node="a"} 1\n')},
    ],
)
async def test_what_is_no_engine_is_not_named(engine, pages, answers):
    engine.pages = answers
    assert await found_at(pages, [port(engine)]) == []


async def test_a_port_where_nobody_listens_or_answers_holds_back_no_other(engine, pages):
    async with AsyncExitStack() as stack:
        hung = await stack.enter_async_context(fake_engine())
        hung.hung |= {"/v1/models", "/v2"}
        found = await found_at(pages, [free_port(), port(hung), port(engine)])
    assert [(seen.url, seen.kind) for seen in found] == [(engine.url, "vllm")]


async def test_a_configured_engine_is_not_asked(engine, pages):
    assert await found_at(pages, [port(engine)], [f"http://gpu-7.example:{port(engine)}"]) == []
    assert not engine.requests


async def test_what_an_engine_says_is_bounded_and_on_one_line(engine, pages):
    data = b",".join([b'{"id":"a\\nb%b","owned_by":"vllm"}' % (b"x" * 500)] * 100)
    engine.pages = {"/v1/models": (200, b'{"data":[%b]}' % data)}
    (seen,) = await found_at(pages, [port(engine)])
    assert seen == FoundEngine(engine.url, "vllm", models=[f"a b{'x' * 197}"] * 32)


async def test_one_that_was_configured_after_it_was_found_is_found_no_more(engine, pages):
    discovery = Discovery(pages, [port(engine)])
    assert await discovery.look([])
    assert len(discovery.found(["http://gpu-7.example:1"])) == 1
    assert discovery.found([f"http://gpu-7.example:{port(engine)}"]) == []


async def test_a_look_says_whether_anything_is_new(engine, pages):
    discovery = Discovery(pages, [port(engine)])
    assert [await discovery.look([]) for _ in range(2)] == [True, False]
    engine.pages = {}
    assert await discovery.look([])
    assert discovery.found([]) == []


async def test_a_port_at_which_the_search_fails_by_itself_keeps_it_from_no_other(engine, pages, monkeypatch, caplog):
    engine.pages = {"/v1/models": models("vllm")}
    bad, document = free_port(), pages.document

    async def failing(url, deadline):
        if urlsplit(url).port == bad:
            raise ZeroDivisionError
        return await document(url, deadline)

    monkeypatch.setattr(pages, "document", failing)
    assert [found.url for found in await found_at(pages, [bad, port(engine)])] == [engine.url]
    assert f"the search for an engine at http://127.0.0.1:{bad} failed" in caplog.text
