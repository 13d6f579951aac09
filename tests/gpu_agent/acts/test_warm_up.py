"""First requests to a simulated engine."""

from __future__ import annotations

import json
import re

import pytest

from gpu_agent.acts.outcome import NotDone
from gpu_agent.policy import EnginePolicy
from tests.gpu_agent.acts.works import node_engine, real_work
from wire.acts import WarmUp

SCHEMA = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})


@pytest.mark.parametrize("schema", ["", SCHEMA])
async def test_requests_are_answered_and_their_first_tokens_timed(start_engine, schema):
    engine = start_engine("--model", "llama", "--speed", "20")
    async with real_work(node_engine(engine.url, served_model="llama")) as work:
        said = await work.do(WarmUp(prompt="Hello" if schema else "", schema=schema, requests=3, max_tokens=4))
    assert re.fullmatch(r"3 requests were answered; time to first token \d+ ms at first, \d+ ms at last", said), said
    assert engine.sample("vllm:request_success_total") == 3
    assert engine.sample("vllm:generation_tokens_total") <= 12


async def test_the_engines_key_is_sent_and_what_it_refuses_is_told(start_engine, tmp_path):
    engine = start_engine("--model", "llama")
    (tmp_path / "key").write_text("sk-secret")
    policy = EnginePolicy(api_key_file=str(tmp_path / "key"))
    async with real_work(node_engine(engine.url, served_model="other"), policy) as work:
        with pytest.raises(NotDone, match="/v1/completions answered 404 ") as refusal:
            await work.do(WarmUp(requests=1))
    assert refusal.value.reason == "engine_refused"


async def test_a_schema_that_is_none_is_refused_before_anything_is_sent():
    async with real_work(node_engine()) as work:
        with pytest.raises(NotDone, match="/arguments/schema: it is no JSON object") as refusal:
            await work.do(WarmUp(schema="[1"))
    assert (refusal.value.state, refusal.value.reason) == ("refused", "bad_arguments")


async def test_an_engine_that_answers_too_late_is_told(start_engine):
    engine = start_engine("--model", "llama")
    engine.set_fault(kind="hang")
    async with real_work(node_engine(engine.url, served_model="llama")) as work:
        with pytest.raises(NotDone, match="0 of 2 requests were answered within 1 s") as failure:
            await work.do(WarmUp(requests=2, limit_seconds=1))
    assert failure.value.reason == "timeout"


async def test_an_error_within_a_stream_is_no_answer(start_engine):
    engine = start_engine("--model", "llama")
    engine.set_fault(kind="sse_error")
    async with real_work(node_engine(engine.url, served_model="llama")) as work:
        with pytest.raises(NotDone, match="/v1/completions answered 200 ") as refusal:
            await work.do(WarmUp(requests=1))
    assert refusal.value.reason == "engine_refused"
