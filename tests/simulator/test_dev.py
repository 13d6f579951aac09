"""What can be changed on a running engine, as vLLM lets it be changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from simulator.config_file import insert_config
from tests.simulator.conftest import MODEL, Engine, StartEngine

COMPLETIONS = "/v1/completions"
ENDLESS = {"model": MODEL, "prompt": "hello", "max_tokens": 4000, "ignore_eos": True}
SHORT = {**ENDLESS, "max_tokens": 3}


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield session


async def post(client: aiohttp.ClientSession, engine: Engine, path: str, body: Any = None) -> int:
    async with client.post(engine.url + path, json=body) as response:
        await response.read()
        return response.status


async def says(client: aiohttp.ClientSession, engine: Engine, path: str) -> Any:
    async with client.get(engine.url + path) as response:
        return await response.json()


async def test_without_the_flags_the_endpoints_are_not_there(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    engine = start_engine("--speed", "instant")
    for path in ("/pause", "/resume", "/sleep", "/wake_up", "/reset_prefix_cache", "/v1/load_lora_adapter"):
        assert await post(client, engine, path, {}) == 404
    for path in ("/is_paused", "/is_sleeping", "/server_info"):
        assert (await client.get(engine.url + path)).status == 404


@pytest.mark.parametrize("speed", ["50", "instant"])
async def test_a_paused_engine_answers_new_requests_when_it_goes_on(
    start_engine: StartEngine, client: aiohttp.ClientSession, speed: str
) -> None:
    engine = start_engine("--dev-mode", "--speed", speed)
    assert await post(client, engine, "/pause?mode=keep") == 200
    assert await says(client, engine, "/is_paused") == {"is_paused": True}
    # As vLLM: whoever asks a paused engine whether it sleeps is told so; its metrics know better.
    assert await says(client, engine, "/is_sleeping") == {"is_sleeping": True}
    assert engine.sample("vllm:engine_sleep_state", sleep_state="awake") == 1
    request = asyncio.create_task(post(client, engine, COMPLETIONS, SHORT))
    done, _ = await asyncio.wait({request}, timeout=0.3)
    assert not done
    assert engine.sample("vllm:num_requests_waiting") == 0
    assert await post(client, engine, "/resume") == 200
    assert await request == 200
    assert await says(client, engine, "/is_paused") == {"is_paused": False}


async def test_a_pause_keeps_what_runs_where_it_stands(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    engine = start_engine("--dev-mode")
    request = asyncio.create_task(post(client, engine, COMPLETIONS, {**ENDLESS, "max_tokens": 100}))
    await asyncio.to_thread(engine.wait_for_sample, "vllm:num_requests_running", 1)
    await post(client, engine, "/pause?mode=keep")
    # The step under way when it paused may still end.
    await asyncio.wait({request}, timeout=0.1)
    tokens = engine.sample("vllm:generation_tokens_total")
    await asyncio.wait({request}, timeout=0.2)
    assert engine.sample("vllm:generation_tokens_total") == tokens < 100
    await post(client, engine, "/resume")
    assert await request == 200


async def test_a_pause_that_aborts_ends_what_runs(start_engine: StartEngine, client: aiohttp.ClientSession) -> None:
    engine = start_engine("--dev-mode")
    request = asyncio.create_task(post(client, engine, COMPLETIONS, ENDLESS))
    await asyncio.to_thread(engine.wait_for_sample, "vllm:num_requests_running", 1)
    await post(client, engine, "/pause?mode=abort")
    assert await request == 500
    assert engine.sample("vllm:num_requests_running") == 0


async def test_a_pause_that_waits_answers_when_all_have_ended(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    engine = start_engine("--dev-mode")
    request = asyncio.create_task(post(client, engine, COMPLETIONS, {**ENDLESS, "max_tokens": 60}))
    await asyncio.to_thread(engine.wait_for_sample, "vllm:num_requests_running", 1)
    assert await post(client, engine, "/pause?mode=wait") == 200
    assert engine.sample("vllm:num_requests_running") == 0
    assert await request == 200


async def test_sleep_shows_in_the_metrics_and_ends_by_waking(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    engine = start_engine("--dev-mode", "--speed", "instant")
    for level, state in (("1", "weights_offloaded"), ("2", "discard_all")):
        assert await post(client, engine, f"/sleep?level={level}") == 200
        assert engine.sample("vllm:engine_sleep_state", sleep_state=state) == 1
        assert engine.sample("vllm:engine_sleep_state", sleep_state="awake") == 0
        assert await says(client, engine, "/is_sleeping") == {"is_sleeping": True}
    assert await post(client, engine, "/wake_up") == 200
    assert await says(client, engine, "/is_sleeping") == {"is_sleeping": False}
    assert engine.sample("vllm:engine_sleep_state", sleep_state="awake") == 1
    assert await post(client, engine, "/sleep?level=3") == 422


async def test_adapters_are_loaded_served_and_unloaded(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    engine = start_engine("--runtime-lora", "--speed", "instant")
    adapter = {"lora_name": "legal", "lora_path": "/adapters/legal"}
    assert await post(client, engine, "/v1/load_lora_adapter", adapter) == 200
    assert await post(client, engine, "/v1/load_lora_adapter", adapter) == 400
    models = (await says(client, engine, "/v1/models"))["data"]
    assert [(card["id"], card["root"], card["parent"]) for card in models][1:] == [("legal", "/adapters/legal", MODEL)]
    assert await post(client, engine, COMPLETIONS, {**SHORT, "model": "legal"}) == 200
    assert await post(client, engine, "/v1/unload_lora_adapter", {"lora_name": "legal"}) == 200
    assert await post(client, engine, "/v1/unload_lora_adapter", {"lora_name": "legal"}) == 404
    assert await post(client, engine, COMPLETIONS, {**SHORT, "model": "legal"}) == 404


async def test_the_command_line_wins_over_the_file_and_the_file_over_the_default(
    start_engine: StartEngine, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text('# set by the test\nmax_num_seqs: 32\nkv-capacity-tokens: 20000\ndev-mode: true\nseed: "7"\n')
    engine = start_engine("--config", str(file), "--max-num-seqs", "64")
    config = (await says(client, engine, "/server_info?config_format=json"))["vllm_config"]
    assert config["scheduler_config"] == {"max_num_seqs": 64, "max_num_batched_tokens": 8192}
    assert config["cache_config"] == {"block_size": 16, "num_gpu_blocks": 1250}
    assert "max_num_seqs" in (await says(client, engine, "/server_info"))["vllm_config"]


def test_a_file_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text("seed: 1\nlist:\n- a\n")
    with pytest.raises(ValueError, match="line 2 is not `option: value`"):
        insert_config(["--config", str(file)])
    with pytest.raises(ValueError, match=r"must be a .yaml or .yml file"):
        insert_config(["--config", str(tmp_path / "engine.json")])
    with pytest.raises(FileNotFoundError):
        insert_config(["--config", str(tmp_path / "absent.yaml")])
