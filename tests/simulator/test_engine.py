"""The engine as a process: what clients of vLLM see, also when they leave and when it fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from simulator.tokenizer import build_tokenizer
from tests.services import wait_for
from tests.simulator.conftest import MODEL, Engine, StartEngine

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# Slow enough that an answer of thousands of tokens outlives every test.
ENDLESS = {"max_tokens": 4000, "ignore_eos": True}


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield session


def chat_body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "hello there"}], **fields}


async def post(client: aiohttp.ClientSession, url: str, body: Any, **headers: str) -> tuple[int, Any]:
    async with client.post(url, json=body, headers=headers) as response:
        assert response.headers["x-headworks-simulated"] == "true"
        return response.status, await response.json()


def status_of_a_new_request(engine: Engine) -> int:
    body = json.dumps(chat_body(max_tokens=1)).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(engine.url + CHAT, body), timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


async def events(response: aiohttp.ClientResponse) -> list[Any]:
    """All events of a stream; the last must be [DONE], which is not among them."""
    lines = [line[6:].strip() for line in (await response.read()).split(b"\n") if line.startswith(b"data: ")]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("speed", ["20", "instant"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_stream_has_one_event_a_token_and_the_same_text_as_the_whole_answer(
    start_engine: StartEngine, client: aiohttp.ClientSession, path: str, speed: str
) -> None:
    engine = start_engine("--speed", speed)
    content = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    body = {"model": MODEL, **content, "max_tokens": 12, "n": 2, "ignore_eos": True}
    status, whole = await post(client, engine.url + path, body, **{"X-Request-Id": "req-1"})
    assert status == 200
    streaming = {**body, "stream": True, "stream_options": {"include_usage": True}}
    async with client.post(engine.url + path, json=streaming, headers={"X-Request-Id": "req-22"}) as response:
        assert response.content_type == "text/event-stream"
        *chunks, last = await events(response)
    assert whole["id"].endswith("-req-1")
    assert {chunk["id"] for chunk in chunks} == {f"{'chatcmpl' if path == CHAT else 'cmpl'}-req-22"}
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert whole["usage"]["completion_tokens"] == 24
    assert abs(whole["created"] - time.time()) < 60
    for choice in whole["choices"]:
        mine = [item for chunk in chunks for item in chunk["choices"] if item["index"] == choice["index"]]
        if path == CHAT:
            assert mine.pop(0)["delta"] == {"role": "assistant", "content": ""}
        texts = [item["delta"]["content"] if path == CHAT else item["text"] for item in mine]
        assert len(texts) == 12
        assert "".join(texts) == (choice["message"]["content"] if path == CHAT else choice["text"])
        assert [item["finish_reason"] for item in mine] == [None] * 11 + ["length"]


@pytest.mark.parametrize("speed", ["20", "instant"])
async def test_a_repeated_body_is_answered_under_its_own_request_id(
    start_engine: StartEngine, client: aiohttp.ClientSession, speed: str
) -> None:
    url = start_engine("--speed", speed).url + CHAT
    for request_id in ("aa", "bb", "a-longer-one"):
        _, whole = await post(client, url, chat_body(max_tokens=3), **{"X-Request-Id": request_id})
        assert whole["id"] == f"chatcmpl-{request_id}"
        streamed = await client.post(
            url, json=chat_body(max_tokens=3, stream=True), headers={"X-Request-Id": request_id}
        )
        assert {event["id"] for event in await events(streamed)} == {f"chatcmpl-{request_id}"}
    _, whole = await post(client, url, chat_body(max_tokens=3), **{"X-Request-Id": 'bad"id'})
    assert '"' not in whole["id"]


async def test_a_stream_without_include_usage_has_no_usage(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    engine = start_engine("--speed", "20")
    response = await client.post(engine.url + CHAT, json=chat_body(max_tokens=2, stream=True))
    found = await events(response)
    assert all(event["choices"] and "usage" not in event for event in found)


async def test_tokens_arrive_while_later_ones_are_not_yet_computed(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    engine = start_engine()
    async with client.post(engine.url + CHAT, json=chat_body(stream=True, **ENDLESS)) as response:
        assert (await response.content.readline()).startswith(b"data: ")
        assert engine.sample("vllm:num_requests_running") == 1
        assert 0 < engine.sample("vllm:generation_tokens_total") < 4000


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_blocks_and_is_no_success(
    start_engine: StartEngine, client: aiohttp.ClientSession, stream: bool
) -> None:
    engine = start_engine()
    request = asyncio.create_task(post(client, engine.url + CHAT, chat_body(stream=stream, n=3, **ENDLESS)))
    await asyncio.to_thread(engine.wait_for_sample, "vllm:num_requests_running", 3)
    assert engine.sample("vllm:kv_cache_usage_perc") > 0
    request.cancel()
    await asyncio.to_thread(engine.wait_for_sample, "vllm:num_requests_running", 0)
    assert engine.sample("vllm:kv_cache_usage_perc") == 0
    assert engine.sample("vllm:request_success_total") == 0


async def test_a_client_that_leaves_the_queue_leaves_it_at_once(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    engine = start_engine("--max-num-seqs", "1")
    running = asyncio.create_task(post(client, engine.url + CHAT, chat_body(**ENDLESS)))
    await asyncio.to_thread(engine.wait_for_sample, "vllm:num_requests_running", 1)
    waiting = asyncio.create_task(post(client, engine.url + CHAT, chat_body(**ENDLESS)))
    await asyncio.to_thread(engine.wait_for_sample, "vllm:num_requests_waiting", 1)
    assert engine.sample("vllm:num_requests_waiting_by_reason", reason="capacity") == 1
    waiting.cancel()
    await asyncio.to_thread(engine.wait_for_sample, "vllm:num_requests_waiting", 0)
    assert engine.sample("vllm:num_requests_running") == 1
    running.cancel()


async def test_a_client_that_leaves_in_prefill_frees_its_blocks(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    # One token a step: a prompt of a hundred tokens stays in prefill for minutes.
    engine = start_engine("--max-num-seqs", "1", "--max-num-batched-tokens", "1", "--speed", "0.01")
    body = {"model": MODEL, "prompt": [300] * 100, "max_tokens": 5}
    request = asyncio.create_task(post(client, engine.url + COMPLETIONS, body))
    await asyncio.to_thread(engine.wait_for_sample, "vllm:num_requests_running", 1)
    request.cancel()
    await asyncio.to_thread(engine.wait_for_sample, "vllm:num_requests_running", 0)
    assert engine.sample("vllm:kv_cache_usage_perc") == 0
    assert engine.sample("vllm:time_to_first_token_seconds_count") == 0


async def test_more_work_than_memory_preempts_and_still_answers_everyone(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    engine = start_engine("--kv-capacity-tokens", "1024", "--max-model-len", "1024", "--speed", "50")
    body = chat_body(max_tokens=300, ignore_eos=True)
    answers = await asyncio.gather(*(post(client, engine.url + CHAT, body) for _ in range(8)))
    assert [(status, answer["usage"]["completion_tokens"]) for status, answer in answers] == [(200, 300)] * 8
    assert engine.sample("vllm:num_preemptions_total") > 0
    assert engine.sample("vllm:generation_tokens_total") == 2400
    assert engine.sample("vllm:request_success_total", finished_reason="length") == 8
    assert engine.sample("vllm:kv_cache_usage_perc") == 0


async def test_a_long_prompt_is_measured_and_answered(
    start_engine: StartEngine, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    build_tokenizer(tmp_path / "tokenizer.json")
    options = ("--speed", "1000", "--max-model-len", "100000", "--tokenizer", str(tmp_path / "tokenizer.json"))
    engine = start_engine(*options)
    status, answer = await post(client, engine.url + COMPLETIONS, {"model": MODEL, "prompt": " time" * 50_000})
    assert (status, answer["usage"]["prompt_tokens"]) == (200, 50_000)
    status, answer = await post(client, engine.url + COMPLETIONS, {"model": MODEL, "prompt": " time" * 100_000})
    assert (status, answer["error"]["param"]) == (400, "prompt")


async def test_errors_have_the_shape_of_openai(start_engine: StartEngine, client: aiohttp.ClientSession) -> None:
    engine = start_engine("--speed", "instant")
    error = {
        "message": "Expected `int` >= 1 - at `$.max_tokens`",
        "type": "BadRequestError",
        "param": "max_tokens",
        "code": 400,
    }
    assert await post(client, engine.url + CHAT, chat_body(max_tokens=0)) == (400, {"error": error})
    assert (await post(client, engine.url + "/v2/none", {}))[0] == 404
    assert (await post(client, engine.url + "/health", {}))[0] == 405
    async with client.post(engine.url + CHAT, data=b"x" * (8 * 1024 * 1024 + 1)) as response:
        assert response.status == 413
        assert (await response.json())["error"]["message"] == "the body is larger than 8388608 bytes"


async def test_what_an_engine_says_of_itself(start_engine: StartEngine, client: aiohttp.ClientSession) -> None:
    engine = start_engine("--served-model-name", "first", "second", "--kv-capacity-tokens", "20000")
    for path in ("/health", "/ping"):
        assert (await client.get(engine.url + path)).status == 200
    models = await (await client.get(f"{engine.url}/v1/models")).json()
    assert [(card["id"], card["root"], card["max_model_len"]) for card in models["data"]] == [
        ("first", "first", 8192),
        ("second", "first", 8192),
    ]
    response = await client.get(f"{engine.url}/version")
    assert await response.json() == {"version": "0.32.0+simulated"}
    assert response.headers["server"] == "headworks-simulator"
    _, tokenized = await post(client, f"{engine.url}/tokenize", {"prompt": " time time"})
    assert (tokenized["count"], len(tokenized["tokens"])) == (2, 2)
    assert engine.sample("vllm:cache_config_info", kv_cache_size_tokens="20000") == 1
    assert engine.sample("vllm:num_requests_running", model_name="first", engine="0") == 0


async def test_error_faults_clear_after_so_many_requests(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    engine = start_engine("--speed", "20")
    engine.set_fault(kind="error_500", requests=2)
    statuses = [(await post(client, engine.url + CHAT, chat_body(max_tokens=1)))[0] for _ in range(3)]
    assert statuses == [500, 500, 200]


@pytest.mark.parametrize("speed", ["20", "instant"])
async def test_a_faulty_stream_is_200_with_an_error_as_its_first_event(
    start_engine: StartEngine, client: aiohttp.ClientSession, speed: str
) -> None:
    engine = start_engine("--speed", speed)
    engine.set_fault(kind="sse_error")
    async with client.post(engine.url + CHAT, json=chat_body(stream=True)) as response:
        assert response.status == 200
        assert [event["error"]["code"] for event in await events(response)] == [503]
    assert (await post(client, engine.url + CHAT, chat_body()))[0] == 503
    assert (await post(client, engine.url + CHAT, "no object"))[0] == 400


@pytest.mark.parametrize("speed", ["20", "instant"])
async def test_a_hung_engine_is_healthy_and_answers_nothing_until_it_recovers(
    start_engine: StartEngine, client: aiohttp.ClientSession, speed: str
) -> None:
    engine = start_engine("--speed", speed)
    engine.set_fault(kind="hang")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(post(client, engine.url + CHAT, chat_body(max_tokens=1)), 0.3)
    assert (await client.get(f"{engine.url}/health")).status == 200
    assert engine.sample("vllm:iteration_tokens_total_count") == 0
    engine.set_fault(kind="none")
    assert (await post(client, engine.url + CHAT, chat_body(max_tokens=1)))[0] == 200


async def test_a_slow_engine_computes_but_later(start_engine: StartEngine, client: aiohttp.ClientSession) -> None:
    engine = start_engine()
    engine.set_fault(kind="slow", factor=50)
    await post(client, engine.url + CHAT, chat_body(max_tokens=2, ignore_eos=True))
    assert engine.sample("vllm:inter_token_latency_seconds_sum") > 50 * 0.0065


@pytest.mark.parametrize(
    ("fault", "param"),
    [
        ({"kind": "explode"}, "kind"),
        ({"kind": "slow", "factor": 0}, "factor"),
        ({"kind": "hang", "requests": 1}, "requests"),
    ],
)
async def test_an_unknown_fault_is_refused(
    start_engine: StartEngine, client: aiohttp.ClientSession, fault: dict[str, Any], param: str
) -> None:
    engine = start_engine()
    status, answer = await post(client, f"{engine.url}/simulator/fault", fault)
    assert (status, answer["error"]["param"]) == (400, param)


async def test_sigterm_ends_streams_by_an_error_event(start_engine: StartEngine, client: aiohttp.ClientSession) -> None:
    engine = start_engine()
    async with client.post(engine.url + CHAT, json=chat_body(stream=True, **ENDLESS)) as response:
        await response.content.readline()
        os.kill(engine.process.pid, signal.SIGTERM)
        assert (await events(response))[-1]["error"]["code"] == 500
    assert await asyncio.to_thread(engine.process.wait, 10) == 0


async def test_sigterm_with_a_timeout_lets_answers_end_and_takes_no_new_ones(
    start_engine: StartEngine, client: aiohttp.ClientSession
) -> None:
    engine = start_engine("--shutdown-timeout", "20")
    async with client.post(engine.url + CHAT, json=chat_body(stream=True, max_tokens=400, ignore_eos=True)) as response:
        await response.content.readline()
        os.kill(engine.process.pid, signal.SIGTERM)
        await asyncio.to_thread(wait_for, lambda: status_of_a_new_request(engine) == 500, 10, "new work to be refused")
        assert (await client.get(f"{engine.url}/health")).status == 200
        assert (await events(response))[-1]["choices"][0]["finish_reason"] == "length"
    assert await asyncio.to_thread(engine.process.wait, 10) == 0


def test_pipelined_requests_are_answered_in_order(start_engine: StartEngine) -> None:
    engine = start_engine("--speed", "instant")
    head = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n%b"
    bodies = [json.dumps({"prompt": " time" * count}).encode() for count in (1, 2, 3)]
    with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as connection:
        for body in bodies[:2]:
            connection.sendall(head % (len(body), b"", body))
        connection.sendall(head % (len(bodies[2]), b"Connection: close\r\n", bodies[2]))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    counts = [json.loads(part.partition(b"\r\n\r\n")[2])["count"] for part in answer.split(b"HTTP/1.1 200 OK")[1:]]
    assert counts == [1, 2, 3]


@pytest.mark.parametrize(
    "options",
    [
        ("--speed", "0"),
        ("--speed", "fast"),
        ("--port", "70000"),
        ("--kv-capacity-tokens", "100"),
        ("--max-num-batched-tokens", "1"),
        ("--tokenizer", "/dev/null"),
    ],
)
def test_an_engine_that_could_not_serve_does_not_start(options: tuple[str, str]) -> None:
    argv = [sys.executable, "-m", "simulator.engine", "--port", "0", *options]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2
    assert "usage:" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_taken_is_named(start_engine: StartEngine) -> None:
    port = str(start_engine().port)
    argv = [sys.executable, "-m", "simulator.engine", "--port", port]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_client_that_waits_for_100_continue_gets_it(start_engine: StartEngine) -> None:
    engine = start_engine("--speed", "instant")
    with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as connection:
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b'{"prompt":"ab"}')
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
