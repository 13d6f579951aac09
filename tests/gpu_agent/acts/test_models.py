"""Triton's model repository, as KServe v2 has it, answered by a server of a few lines."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gpu_agent.acts import models
from gpu_agent.acts.outcome import NotDone
from tests.gpu_agent.acts.works import node_engine, real_work
from wire.acts import LoadModel, UnloadModel


@asynccontextmanager
async def triton(refuses=None, looks_until_so=3, ready=False):
    """Its url, and the model's calls. A model is ready, or gone, so many looks after it was asked."""
    calls, left = [], 0

    async def ask(request):
        nonlocal ready, left
        calls.append(request.raw_path)
        if refuses is not None:
            return web.json_response({"error": refuses}, status=400)
        ready, left = request.path.endswith("/load"), looks_until_so
        return web.Response()

    async def is_ready(request):
        nonlocal left
        left -= 1
        return web.Response(status=200 if ready == (left <= 0) else 400)

    application = web.Application()
    application.router.add_post("/v2/repository/models/{model}/{action}", ask)
    application.router.add_get("/v2/models/{model}/ready", is_ready)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}", calls
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(models, "_POLL_SECONDS", 0.01)


async def test_a_model_is_loaded_when_it_is_ready_and_unloaded_when_it_is_not():
    async with triton() as (url, calls), real_work(node_engine(url, "triton")) as work:
        assert await work.do(LoadModel("meta/llama 3")) == "meta/llama 3 is loaded and ready"
        assert await work.do(UnloadModel("meta/llama 3")) == "meta/llama 3 is unloaded"
    name = "meta%2Fllama%203"
    assert calls == [f"/v2/repository/models/{name}/load", f"/v2/repository/models/{name}/unload"]


async def test_a_server_that_may_not_load_says_so():
    refusal = "explicit model load / unload is not allowed if polling is enabled"
    async with triton(refuses=refusal) as (url, _), real_work(node_engine(url, "triton")) as work:
        with pytest.raises(NotDone, match=r"answered 400 .*polling is enabled") as refused:
            await work.do(LoadModel("llama"))
    assert (refused.value.state, refused.value.reason) == ("failed", "engine_refused")


@pytest.mark.parametrize(("ready", "ends"), [(False, "done"), (True, "failed")])
async def test_a_model_that_is_not_loaded_is_unloaded_whatever_the_server_says(ready, ends):
    async with triton(refuses="no such model", ready=ready) as (url, _), real_work(node_engine(url, "triton")) as work:
        if ends == "done":
            assert await work.do(UnloadModel("llama")) == "llama is not loaded"
        else:
            with pytest.raises(NotDone, match="answered 400"):
                await work.do(UnloadModel("llama"))


async def test_a_model_that_never_becomes_ready_ends_with_its_time():
    async with triton(looks_until_so=10**6) as (url, _), real_work(node_engine(url, "triton"), act_seconds=0.2) as work:
        with pytest.raises(NotDone) as late:
            await work.do(LoadModel("llama"))
    assert late.value.reason == "timeout"
