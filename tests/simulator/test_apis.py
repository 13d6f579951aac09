"""Responses, messages, embeddings and rerank of a simulated engine, on a modelled GPU and answered at once."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.generation import Generator
from simulator.lengths import LogNormal
from simulator.pooling import plan_embeddings, plan_rerank
from simulator.requests import ApiError
from simulator.similarity import DIMENSIONS, cosine, embed
from simulator.tokenizer import train_tokenizer
from tests.simulator.conftest import MODEL, Engine, StartEngine

GENERATOR = Generator(train_tokenizer(), [MODEL], 8192, LogNormal(median_tokens=10), seed=0)
SPEEDS = pytest.mark.parametrize("speed", ["100", "instant"])


async def post(engine: Engine, path: str, **body: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.post(engine.url + path, json={"model": MODEL, **body}) as answer:
        assert answer.headers["x-headworks-simulated"] == "true"
        return answer.status, json.loads(await answer.read())


async def events(engine: Engine, path: str, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    """(name, data) of each event of a stream."""
    body = {"model": MODEL, "stream": True, **body}
    async with aiohttp.ClientSession() as http, http.post(engine.url + path, json=body) as answer:
        parts = (await answer.text()).strip().split("\n\n")
    lines = [part.split("\n") for part in parts]
    assert all(len(each) == 2 for each in lines)
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]


@SPEEDS
async def test_a_response_streams_what_it_answers_whole(start_engine: StartEngine, speed: str) -> None:
    engine = start_engine("--speed", speed)
    asked = {"input": "hello", "instructions": "be brief", "max_output_tokens": 5, "ignore_eos": True}
    _, whole = await post(engine, "/v1/responses", **asked)
    streamed = await events(engine, "/v1/responses", **asked)
    assert whole["usage"]["output_tokens"] == 5
    assert (whole["status"], whole["incomplete_details"]["reason"]) == ("incomplete", "max_output_tokens")
    text = whole["output"][0]["content"][0]["text"]
    assert "".join(data["delta"] for name, data in streamed if name == "response.output_text.delta") == text
    assert [data["sequence_number"] for _, data in streamed] == list(range(len(streamed)))
    assert all(name == data["type"] for name, data in streamed)
    last = streamed[-1][1]["response"]
    assert (last["usage"], last["output"][0]["content"]) == (whole["usage"], whole["output"][0]["content"])


@SPEEDS
async def test_messages_stream_what_they_answer_whole(start_engine: StartEngine, speed: str) -> None:
    engine = start_engine("--speed", speed)
    asked = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "ignore_eos": True, "system": "so"}
    _, whole = await post(engine, "/v1/messages", **asked)
    streamed = await events(engine, "/v1/messages", **asked)
    assert (whole["stop_reason"], whole["usage"]["output_tokens"]) == ("max_tokens", 5)
    names = [name for name, _ in streamed]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    text = "".join(data["delta"]["text"] for name, data in streamed if name == "content_block_delta")
    assert text == whole["content"][0]["text"]
    assert streamed[-2][1]["usage"] == whole["usage"]


@SPEEDS
async def test_embeddings_are_unit_vectors_of_each_input_in_both_encodings(
    start_engine: StartEngine, speed: str
) -> None:
    engine = start_engine("--speed", speed)
    _, answer = await post(engine, "/v1/embeddings", input=["red wine", "red wine", "blue"], dimensions=32)
    vectors = [row["embedding"] for row in answer["data"]]
    assert all(math.isclose(math.hypot(*vector), 1) and len(vector) == 32 for vector in vectors)
    assert vectors[0] == vectors[1] != vectors[2]
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 3
    _, encoded = await post(engine, "/v1/embeddings", input="blue", dimensions=32, encoding_format="base64")
    unpacked = struct.unpack("<32f", base64.b64decode(encoded["data"][0]["embedding"]))
    assert unpacked == pytest.approx(vectors[2])
    assert engine.sample("vllm:generation_tokens_total") == 0
    assert engine.sample("vllm:request_success_total", finished_reason="stop") == 4


@SPEEDS
async def test_a_ranking_puts_what_shares_words_first(start_engine: StartEngine, speed: str) -> None:
    engine = start_engine("--speed", speed)
    documents = ["the weather in Ankara", {"text": "how to brew coffee at home"}, "where people drink their coffee"]
    _, answer = await post(engine, "/v1/rerank", query="brew coffee", documents=documents, top_n=2)
    assert [row["index"] for row in answer["results"]] == [1, 2]
    assert answer["results"][0]["document"]["text"] == "how to brew coffee at home"
    scores = [row["relevance_score"] for row in answer["results"]]
    assert 1 >= scores[0] > scores[1] > 0
    _, query = await post(engine, "/v1/embeddings", input="brew coffee")
    assert answer["usage"]["prompt_tokens"] > 3 * query["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", {}, "input"),
        ("/v1/responses", {"input": "x", "tools": [{"type": "function"}]}, "tools"),
        ("/v1/responses", {"input": "x", "previous_response_id": "r"}, "previous_response_id"),
        ("/v1/responses", {"input": "x", "text": {"format": {"type": "json_object"}}}, "text"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}]}, "max_tokens"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "tools": [1]}, "tools"),
        ("/v1/embeddings", {"input": ["a", 1]}, "input"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": "a", "dimensions": DIMENSIONS + 1}, "dimensions"),
        ("/v1/embeddings", {"input": "hello " * 9000}, "input"),
        ("/v1/embeddings", {"input": "a", "model": "other"}, "model"),
        ("/v1/rerank", {"documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "a", "documents": ["hello " * 9000]}, "documents"),
    ],
)
def test_bad_input_is_refused_with_its_field(path: str, body: dict[str, Any], param: str) -> None:
    plans: dict[str, Callable[[bytes], object]] = {
        "/v1/responses": lambda body: GENERATOR.plan("responses", body),
        "/v1/messages": lambda body: GENERATOR.plan("messages", body),
        "/v1/embeddings": lambda body: plan_embeddings(GENERATOR, body),
        "/v1/rerank": lambda body: plan_rerank(GENERATOR, body),
    }
    with pytest.raises(ApiError) as refused:
        plans[path](json.dumps(body).encode())
    assert (refused.value.status, refused.value.param) == (404 if param == "model" else 400, param)


async def test_messages_are_refused_in_their_own_shape(start_engine: StartEngine) -> None:
    status, answer = await post(start_engine("--speed", "instant"), "/v1/messages", messages=[], max_tokens=1)
    assert (status, answer["type"], answer["error"]["type"]) == (400, "error", "BadRequestError")


async def test_a_client_that_leaves_takes_its_embeddings_along(start_engine: StartEngine) -> None:
    engine = start_engine("--speed", "0.01")
    async with aiohttp.ClientSession() as http:
        body = json.dumps({"model": MODEL, "input": ["hello"] * 3})
        request = http.post(engine.url + "/v1/embeddings", data=body, timeout=aiohttp.ClientTimeout(total=0.3))
        with pytest.raises(TimeoutError):
            await request
    engine.wait_for_sample("vllm:num_requests_running", 0)
    assert engine.sample("vllm:request_success_total") == 0


@given(st.text(max_size=60), st.integers(1, DIMENSIONS))
def test_every_text_has_a_unit_vector(text: str, dimensions: int) -> None:
    vector = embed(text, dimensions)
    assert len(vector) == dimensions
    assert math.isclose(math.hypot(*vector), 1)
    assert vector == embed(text, dimensions)


def test_paraphrases_lie_nearer_than_other_questions() -> None:
    one = embed("What is the refund policy for annual plans?")
    near = embed("what's the refund policy for an annual plan")
    far = embed("How do I reset the password of my account?")
    assert cosine(one, one) == pytest.approx(1)
    assert cosine(one, near) > 0.7 > 0.4 > cosine(one, far)
