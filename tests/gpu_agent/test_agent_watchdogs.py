"""The agent's process and a simulated engine's: what is told of an engine that stops, hangs, rests or does not obey."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from tests.gpu_agent.processes import agent
from tests.services import Process, free_port
from tests.wire.examples import node_content
from tests.wire.fake_control import DEADLINE_SECONDS, JOIN_TOKEN, snapshot_event
from wire.push import EVENTS_PATH

REPORT = "/api/v1/nodes/report"
MODEL = "simulated"
# Several of the agent's looks, each of which may wait for a machine with more to do than cores.
PATIENCE_SECONDS = 3 * DEADLINE_SECONDS


@pytest.fixture
def port():
    return free_port()


@contextmanager
def simulated(tmp_path, port):
    argv = [sys.executable, "-m", "simulator.engine", "--port", str(port), "--model", MODEL, "--dev-mode"]
    with Process(argv, log=tmp_path / "engine.log") as engine:
        engine.wait_for_port(port)
        yield engine


@pytest.fixture
def engine(tmp_path, port):
    with simulated(tmp_path, port) as running:
        yield running


def post(port, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body or {}).encode())
    urllib.request.urlopen(request, timeout=DEADLINE_SECONDS).close()


@asynccontextmanager
async def watched(control, tmp_path, port, **settings):
    """An agent that has seen the engine well."""
    environment = {f"HEADWORKS_AGENT_{name.upper()}": str(value) for name, value in settings.items()}
    with agent(tmp_path, control.url, HEADWORKS_AGENT_JOIN_TOKEN=JOIN_TOKEN, **environment):
        content = node_content(e1=f"http://127.0.0.1:{port}")
        content["engines"]["e1"]["served_model"] = MODEL
        (await control.stream()).send(snapshot_event(3, content))
        await reported(control, lambda seen: seen["state"] == "up")
        yield


async def reported(control, holds):
    """The next report of which it holds what is said of the engine."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            report = await control.posted(REPORT)
            for seen in report.get("engines", []):
                if holds(seen):
                    return seen


async def told(control, *kinds):
    """The next events, which must be of these kinds."""
    events: list[Any] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(events) < len(kinds):
            events += await control.posts[EVENTS_PATH].get()
    assert [event["kind"] for event in events] == list(kinds)
    return events


async def test_a_core_that_hangs_while_nothing_runs_is_seen_by_the_canary_alone(control, tmp_path, engine, port):
    quick = {"canary_seconds": 0.2, "canary_timeout_seconds": 1, "engine_hung_seconds": 60}
    async with watched(control, tmp_path, port, **quick):
        await reported(control, lambda seen: seen.get("probes") == {"canary": "ok"})
        await asyncio.to_thread(post, port, "/simulator/fault", {"kind": "hang"})
        (failed,) = await told(control, "engine_probe_failed")
        assert (failed["subject"], failed["severity"]) == ("e1", "warning")
        assert failed["detail"].endswith("fails the probe canary: no_answer: /v1/completions: no answer in time")
        seen = await reported(control, lambda seen: seen["probes"] == {"canary": "failed"})
        assert (seen["state"], "condition" in seen) == ("up", False), (
            "its health page is well, and nothing stands still"
        )
        await asyncio.to_thread(post, port, "/simulator/fault", {"kind": "none"})
        await told(control, "engine_probe_ok")


async def test_an_engine_that_drops_response_format_is_found_out(control, tmp_path, engine, port):
    async with watched(control, tmp_path, port, conformance_seconds=0.2):
        await reported(control, lambda seen: seen.get("probes") == {"json_schema": "ok"})
        await asyncio.to_thread(post, port, "/simulator/fault", {"kind": "drop_format"})
        (failed,) = await told(control, "engine_probe_failed")
        assert "fails the probe json_schema: dropped_response_format: " in failed["detail"]
        await asyncio.to_thread(post, port, "/simulator/fault", {"kind": "none"})
        await told(control, "engine_probe_ok")


async def test_an_engine_whose_process_is_stopped_is_unreachable_and_the_same_when_it_goes_on(
    control, tmp_path, engine, port
):
    async with watched(control, tmp_path, port, page_timeout_seconds=1):
        os.kill(engine.pid, signal.SIGSTOP)
        try:
            (down,) = await told(control, "engine_down")
        finally:
            os.kill(engine.pid, signal.SIGCONT)
        assert down["detail"] == "engine e1 (vllm, pool short) is unreachable: /health: no answer in time"
        await told(control, "engine_up")
        await reported(control, lambda seen: seen["state"] == "up")
    assert control.posts[EVENTS_PATH].empty(), "it was not restarted"


async def test_an_engine_that_is_killed_and_started_again_is_dead_and_then_restarted(control, tmp_path, port):
    async with watched_over_a_kill(control, tmp_path, port):
        (down,) = await told(control, "engine_down")
        assert down["detail"].startswith("engine e1 (vllm, pool short) is dead: /health: Cannot connect")
        with simulated(tmp_path, port):
            (_, restarted) = await told(control, "engine_up", "engine_restarted")
            assert restarted["severity"] == "warning"


@asynccontextmanager
async def watched_over_a_kill(control, tmp_path, port):
    with simulated(tmp_path, port) as engine:
        async with watched(control, tmp_path, port):
            engine.kill()
            yield


async def test_pause_and_sleep_are_told_apart_and_no_canary_is_sent_meanwhile(control, tmp_path, engine, port):
    async with watched(control, tmp_path, port, canary_seconds=0.2, canary_timeout_seconds=1):
        await asyncio.to_thread(post, port, "/pause?mode=keep")
        (paused,) = await told(control, "engine_paused")
        assert paused["severity"] == "warning"
        seen = await reported(control, lambda seen: seen.get("condition") == "paused")
        assert "probes" not in seen
        await asyncio.to_thread(post, port, "/resume")
        await told(control, "engine_up")
        await asyncio.to_thread(post, port, "/sleep?level=1")
        (sleeping,) = await told(control, "engine_sleeping")
        assert sleeping["severity"] == "info"
        await asyncio.to_thread(post, port, "/wake_up")
        await told(control, "engine_up")
        await reported(control, lambda seen: seen.get("probes") == {"canary": "ok"})
    assert control.posts[EVENTS_PATH].empty()
