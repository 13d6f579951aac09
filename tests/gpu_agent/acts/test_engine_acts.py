"""Acts on a running vLLM, each against a simulated one, and what is asked of Triton."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_agent.acts.outcome import NotDone
from gpu_agent.acts.tools import number
from gpu_agent.policy import EnginePolicy
from tests.gpu_agent.acts.works import DEADLINE_SECONDS, Work, node_engine, real_work
from tests.services import free_port
from wire import acts


def says(url, path):
    with urllib.request.urlopen(url + path, timeout=5) as answer:
        return json.loads(answer.read())


async def refusal(work, request):
    with pytest.raises(NotDone) as refused:
        await work.do(request)
    return refused.value


async def test_what_is_so_already_is_done(engine_url):
    async with real_work(node_engine(engine_url)) as work:
        assert await work.do(acts.Pause("keep")) == "paused, mode keep"
        assert says(engine_url, "/is_paused") == {"is_paused": True}
        assert await work.do(acts.Pause()) == "it is paused already"
        assert await work.do(acts.Resume()) == "resumed"
        assert await work.do(acts.Resume()) == "it is not paused"
        assert await work.do(acts.Sleep(2)) == "asleep, level 2"
        assert await work.do(acts.Sleep(1)) == "it sleeps already"
        assert await work.do(acts.Wake()) == "awake"
        assert await work.do(acts.Wake()) == "it is awake already"
        assert await work.do(acts.ResetPrefixCache()) == "the prefix cache is empty"


async def test_a_pause_is_not_taken_for_a_sleep_nor_a_sleep_for_a_pause(engine_url):
    async with real_work(node_engine(engine_url)) as work:
        await work.do(acts.Pause("keep"))
        # To wake it would resume it.
        assert await work.do(acts.Wake()) == "it is awake already"
        assert says(engine_url, "/is_paused") == {"is_paused": True}
        assert await work.do(acts.Sleep()) == "asleep, level 1"
        assert (await refusal(work, acts.Resume())).reason == "asleep"
        assert await work.do(acts.Wake()) == "awake"


async def test_an_engine_without_dev_mode_says_what_it_needs(start_engine):
    async with real_work(node_engine(start_engine("--speed", "instant").url)) as work:
        for request in (acts.Sleep(), acts.Wake(), acts.Pause(), acts.Resume(), acts.ResetPrefixCache()):
            refused = await refusal(work, request)
            assert (refused.state, refused.reason) == ("refused", "dev_mode_off")
            assert "VLLM_SERVER_DEV_MODE=1" in refused.detail


async def test_an_engine_that_is_not_there_or_does_not_answer_is_told_apart(engine_url, start_engine):
    async with real_work(node_engine(f"http://127.0.0.1:{free_port()}")) as work:
        assert (await refusal(work, acts.Sleep())).reason == "engine_unreachable"
    async with real_work(node_engine(engine_url), act_seconds=0.3) as work:
        body = json.dumps({"model": "simulated", "prompt": "hi", "max_tokens": 5000, "ignore_eos": True}).encode()
        request = asyncio.create_task(asyncio.to_thread(_post, engine_url + "/v1/completions", body))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not number(await work.work.look(), "requests_running"):
                pass
        late = await refusal(work, acts.Pause("wait"))
        assert (late.state, late.reason) == ("failed", "timeout")
        assert await work.do(acts.Pause()) == "it is paused already"
        _post(engine_url + "/pause?mode=abort", b"")
        await request


def _post(url, body):
    try:
        urllib.request.urlopen(urllib.request.Request(url, body, method="POST"), timeout=30).close()
    except OSError as error:
        return error
    return None


async def test_adapters_are_loaded_from_below_the_nodes_folder_alone(engine_url, tmp_path):
    folder = tmp_path / "adapters"
    (folder / "legal").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (folder / "way-out").symlink_to(tmp_path / "elsewhere")
    policy = EnginePolicy(lora_folder=str(folder))
    async with real_work(node_engine(engine_url), policy) as work:
        for path in (folder, folder / "absent", folder / "way-out", folder / ".." / "elsewhere", tmp_path):
            refused = await refusal(work, acts.LoadLora("legal", str(path)))
            assert (refused.state, refused.reason) == ("refused", "path_not_allowed")
        legal = acts.LoadLora("legal", str(folder / "legal"))
        assert await work.do(legal) == f"legal is loaded from {folder}/legal"
        assert await work.do(legal) == f"legal is loaded from {folder}/legal already"
        assert [model["id"] for model in says(engine_url, "/v1/models")["data"]] == ["simulated", "legal"]
        (folder / "other").mkdir()
        other = await refusal(work, acts.LoadLora("legal", str(folder / "other")))
        assert (other.state, other.reason) == ("failed", "engine_refused")
        assert "has already been loaded" in other.detail
        assert await work.do(acts.UnloadLora("legal")) == "legal is unloaded"
        assert await work.do(acts.UnloadLora("legal")) == "legal is not loaded"
    async with real_work(node_engine(engine_url)) as work:
        assert "names no lora_folder" in (await refusal(work, legal)).detail


async def test_a_disk_that_hangs_holds_back_the_adapters_of_its_own_engine_alone(engine_url, tmp_path, monkeypatch):
    (tmp_path / "legal").mkdir()
    back, real = threading.Event(), Path.resolve

    def resolve(path, strict=False):
        if path.name == "hangs":
            back.wait(DEADLINE_SECONDS)
        return real(path, strict=strict)

    monkeypatch.setattr(Path, "resolve", resolve)
    async with real_work(node_engine(engine_url), EnginePolicy(lora_folder=str(tmp_path)), act_seconds=0.3) as work:
        for _ in range(20):
            late = await refusal(work, acts.LoadLora("legal", str(tmp_path / "hangs")))
            assert late.reason == "timeout"
        other = Work(replace(work.work, name="e2"), [])
        assert (await other.do(acts.LoadLora("legal", str(tmp_path / "legal")))).startswith("legal is loaded")
        assert sum(thread.name == "acts" for thread in threading.enumerate()) == 1
        back.set()


async def test_an_engine_that_takes_no_adapters_says_what_it_needs(start_engine, tmp_path):
    (tmp_path / "legal").mkdir()
    async with real_work(node_engine(start_engine().url), EnginePolicy(lora_folder=str(tmp_path))) as work:
        refused = await refusal(work, acts.LoadLora("legal", str(tmp_path / "legal")))
        assert (refused.state, refused.reason) == ("refused", "lora_updating_off")


async def test_a_key_goes_to_the_api_alone_and_into_no_message(engine, tmp_path):
    engine.pages["/v1/models"] = (401, b"no such key")
    engine.pages["/is_sleeping"] = (200, b'{"is_sleeping": false}')
    (tmp_path / "key").write_text("sk-secret\n")
    policy = EnginePolicy(lora_folder=str(tmp_path), api_key_file=str(tmp_path / "key"))
    async with real_work(node_engine(engine.url), policy) as work:
        refused = await refusal(work, acts.UnloadLora("legal"))
        assert refused.detail == "/v1/models answered 401 no such key"
        await work.do(acts.Wake())
    keys = {request.path: request.headers.get("Authorization") for request in engine.requests}
    assert keys["/v1/models"] == "Bearer sk-secret"
    assert keys["/is_sleeping"] is None
    (tmp_path / "key").write_bytes(b"sk \xff secret")
    async with real_work(node_engine(engine.url), policy) as work:
        refused = await refusal(work, acts.UnloadLora("legal"))
        assert refused.reason == "engine_refused"
        assert "secret" not in refused.detail


async def test_an_engine_that_repeats_the_key_has_it_told_to_nobody(engine, tmp_path):
    engine.pages["/v1/models"] = (401, b"x" * 290 + b" Bearer sk-secret is wrong")
    (tmp_path / "key").write_text("sk-secret\n")
    policy = EnginePolicy(api_key_file=str(tmp_path / "key"))
    async with real_work(node_engine(engine.url), policy) as work:
        refused = await refusal(work, acts.UnloadLora("legal"))
    assert [request.headers.get("Authorization") for request in engine.requests] == ["Bearer sk-secret"]
    assert "sk-" not in refused.detail
    assert "Bea" in refused.detail


async def test_nothing_is_done_at_an_address_that_the_policy_does_not_know(engine):
    engine.pages["/is_sleeping"] = (200, b'{"is_sleeping": false}')
    commands = EnginePolicy(restart_command=["/bin/true"])
    for url, policy in [
        ("http://192.0.2.1:8001", commands),
        ("http://169.254.169.254", commands),
        (engine.url, EnginePolicy(restart_command=["/bin/true"], url="http://127.0.0.1:1")),
    ]:
        for request in (acts.Wake(), acts.Restart(limit_seconds=1), acts.Drain(limit_seconds=1)):
            async with real_work(node_engine(url, cordoned=True), policy) as work:
                refused = await refusal(work, request)
            assert (refused.state, refused.reason) == ("refused", "url_not_allowed"), (url, request)
            assert work.kept == []
    assert engine.requests == []
    async with real_work(node_engine(engine.url), EnginePolicy(url=engine.url)) as work:
        assert await work.do(acts.Wake()) == "it is awake already"


@pytest.mark.parametrize(
    "page", [(200, b"<html>"), (500, b"\xff\x00" * 5000), (302, b""), (200, b'{"is_sleeping": 3}')]
)
async def test_an_answer_that_makes_no_sense_is_bounded_and_told(engine, page):
    engine.pages["/is_sleeping"] = page
    async with real_work(node_engine(engine.url)) as work:
        refused = await refusal(work, acts.Sleep())
    assert (refused.state, refused.reason) == ("failed", "engine_refused")
    assert len(refused.detail) < 500
    assert refused.detail.isprintable()
    assert {request.path for request in engine.requests} == {"/is_sleeping"}


async def test_an_endless_answer_is_cut(engine):
    engine.pages["/is_sleeping"] = (200, b" " * (2 << 20))
    async with real_work(node_engine(engine.url)) as work:
        assert "more than" in (await refusal(work, acts.Sleep())).detail
