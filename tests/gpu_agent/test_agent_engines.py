"""What an agent's process says of its engines beyond whether they are up."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from tests.gpu_agent.fake_engine import fake_engine
from tests.gpu_agent.processes import agent
from tests.wire.examples import node_content
from tests.wire.fake_control import DEADLINE_SECONDS, JOIN_TOKEN, snapshot_event
from wire.push import WRITE_PATH
from wire.write_body import METRIC_NAME

REPORT = "/api/v1/nodes/report"


@pytest.fixture
def environment():
    return {"HEADWORKS_AGENT_JOIN_TOKEN": JOIN_TOKEN, "HEADWORKS_AGENT_REPORT_INTERVAL_SECONDS": "0.5"}


async def first_where(queue, holds):
    async with asyncio.timeout(3 * DEADLINE_SECONDS):
        while True:
            if holds(found := await queue.get()):
                return found


async def test_engines_own_series_pass_under_their_names_and_are_taken(control, engine, tmp_path, environment):
    with agent(tmp_path, control.url, **environment):
        stream = await control.stream()
        stream.send(snapshot_event(3, node_content(e1=engine.url)))
        name = "vllm:prompt_tokens_by_source_total"
        body = await first_where(
            control.posts[WRITE_PATH], lambda body: any(s.labels[METRIC_NAME] == name for s in body)
        )
    own = [dict(series.labels) for series in body if series.labels[METRIC_NAME] == name]
    assert {labels["source"] for labels in own} == {"local_compute", "local_cache_hit", "external_kv_transfer"}
    assert all((labels["node"], labels["engine"], labels["rank"]) == ("node-1", "e1", "0") for labels in own)


async def test_what_an_engine_was_started_with_and_where_its_model_lies_is_reported(
    control, engine, tmp_path, environment
):
    (tmp_path / "weights").write_bytes(b"x" * 500)
    log = tmp_path / "vllm.log"
    log.write_bytes(b"non-default args: {}\nLoading weights took 2.50 seconds\n")
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"engines": {"e1": {"model_path": str(tmp_path / "weights"), "log_file": str(log)}}}))
    with agent(tmp_path, control.url, **environment, HEADWORKS_AGENT_POLICY_FILE=str(policy)):
        stream = await control.stream()
        stream.send(snapshot_event(3, node_content(e1=engine.url)))
        told = await first_where(
            control.posts[REPORT], lambda report: any("model_bytes" in each for each in report.get("engines", []))
        )
        body = await first_where(
            control.posts[WRITE_PATH],
            lambda body: any(s.labels[METRIC_NAME] == "headworks_engine_start_phase_seconds" for s in body),
        )
    (of_e1,) = told["engines"]
    assert (of_e1["model_path"], of_e1["model_bytes"]) == (str(tmp_path / "weights"), 500)
    assert of_e1["start_phases_ms"] == {"load_weights": 2500}
    assert "headworks_engine_model_bytes" in {series.labels[METRIC_NAME] for series in body}


async def test_an_engine_on_a_port_to_try_is_shown_and_one_that_is_configured_is_not(
    control, engine, tmp_path, environment
):
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(fake_engine())
        ports = ",".join(url.rpartition(":")[2] for url in (engine.url, other.url))
        # It is tried before there is a slice, and again only a minute later.
        stack.enter_context(agent(tmp_path, control.url, **environment, HEADWORKS_AGENT_ENGINE_PORTS=ports))
        stream = await control.stream()
        stream.send(snapshot_event(3, node_content(e1=engine.url)))
        told = await first_where(
            control.posts[REPORT], lambda report: len(report.get("found_engines", [])) == 1 and report.get("engines")
        )
    assert told["found_engines"] == [{"url": other.url, "kind": "vllm", "version": "0.32.0"}]
