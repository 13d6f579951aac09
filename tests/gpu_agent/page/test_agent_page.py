"""The agent's process with its own page: what a load balancer, kubelet and an existing Prometheus see."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from simulator.gpu import fault
from tests.gpu_agent.processes import agent
from tests.gpu_agent.test_agent_push import is_stale
from tests.services import Process, free_port, service_binary, wait_for
from tests.simulator.conftest import start_engine as start_engine
from tests.wire.examples import node_content
from tests.wire.fake_control import DEADLINE_SECONDS, fake_control, snapshot_event
from wire.push import EVENTS_PATH, WRITE_PATH
from wire.write_body import METRIC_NAME

REPORT = "/api/v1/nodes/report"
PATIENCE_SECONDS = 3 * DEADLINE_SECONDS


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def settings(environment, port):
    return {
        **environment,
        "HEADWORKS_AGENT_PROBE_INTERVAL_SECONDS": "0.2",
        "HEADWORKS_AGENT_HOST_INTERVAL_SECONDS": "0.2",
        "HEADWORKS_AGENT_LISTEN": f"127.0.0.1:{port}",
    }


def got(port, path):
    """Status and JSON of a page; None while nobody serves it."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except urllib.error.URLError:
        return None


async def until(port, path, status, body):
    """Wait until that is the answer, in a thread: engines and control plane answer from this loop."""
    await asyncio.to_thread(
        wait_for, lambda: got(port, path) == (status, body), PATIENCE_SECONDS, f"{status} from {path}"
    )


def not_ready(*reasons):
    return 503, {"ready": False, "reasons": list(reasons)}


READY = 200, {"ready": True}


async def test_a_cordon_takes_the_node_and_its_engines_out_and_holds_while_the_control_plane_is_away(
    engine, tmp_path, settings, port
):
    control_port = free_port()
    url = f"http://127.0.0.1:{control_port}"
    content = node_content(e1=engine.url, e2=engine.url)
    with agent(tmp_path, url, **settings):
        async with fake_control(control_port) as control:
            stream = await control.stream()
            await until(port, "/healthz", 200, {"ok": True})
            await until(port, "/readyz", *not_ready("not_configured"))
            stream.send(snapshot_event(3, content))
            await until(port, "/engines/e1/readyz", *READY)
            await until(port, "/readyz", *READY)
            content["engines"]["e1"]["cordoned"] = True
            stream.send(snapshot_event(4, content))
            await until(port, "/engines/e1/readyz", *not_ready("engine_cordoned"))
            await until(port, "/engines/e2/readyz", *READY)
            content["node"]["cordoned"] = True
            stream.send(snapshot_event(5, content))
            await until(port, "/engines/e2/readyz", *not_ready("node_cordoned"))
            await until(port, "/readyz", *not_ready("node_cordoned"))
            assert (await control.ack())["revision"] == 3
        await until(port, "/readyz", *not_ready("node_cordoned"))
    with agent(tmp_path, url, **settings):
        await until(port, "/engines/e2/readyz", *not_ready("node_cordoned"))
        await until(port, "/readyz", *not_ready("node_cordoned"))


async def test_answers_are_quick_while_a_gpu_and_an_engine_hang(control, engine, tmp_path, settings, port, state):
    with agent(tmp_path, control.url, **settings):
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        await until(port, "/engines/e1/readyz", *READY)
        engine.hung |= {"/health"}
        with state.change() as machine:
            fault.hang(machine, 1)

        def seconds():
            begun = time.monotonic()
            assert got(port, "/readyz") == READY
            return time.monotonic() - begun

        taken = sorted([await asyncio.to_thread(seconds) for _ in range(40)])
        assert taken[len(taken) // 2] < 0.05


async def test_gpus_that_are_all_lost_take_the_node_out(control, tmp_path, settings, port, state):
    with agent(tmp_path, control.url, **settings):
        (await control.stream()).send(snapshot_event(3, node_content()))
        for index in range(3):
            await asyncio.to_thread(wait_for, lambda gpu=str(index): shows_gpu(port, gpu), PATIENCE_SECONDS, "the GPU")
        await until(port, "/readyz", *READY)
        with state.change() as machine:
            for index in range(3):
                fault.lose(machine, index)
        await until(port, "/readyz", *not_ready("gpus_lost"))


def identity(labels):
    return frozenset(labels.items())


def take_pushed(control, living):
    """Note what was pushed since the last call."""
    bodies = control.posts[WRITE_PATH]
    while not bodies.empty():
        for each in bodies.get_nowait():
            change = living.discard if is_stale(each.samples[-1][1]) else living.add
            change(identity(each.labels))


def scraped(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        lines = response.read().decode().splitlines()
    # Without types, since this parser writes _total after the names of counters that lack it, as DCGM's do.
    text = "".join(f"{line}\n" for line in lines if not line.startswith("#"))
    return {
        identity({METRIC_NAME: sample.name, **sample.labels})
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@contextmanager
def prometheus(tmp_path, target_port):
    """A real one that scrapes the page; its address."""
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "agent", "static_configs": [{"targets": [f"127.0.0.1:{target_port}"]}]}],
    }
    # JSON is YAML.
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    command: list[str | Path] = [
        service_binary("prometheus"),
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with Process(command, log=tmp_path / "prometheus.log") as process:
        process.wait_for_http(f"http://127.0.0.1:{port}/-/ready")
        yield port


def stored(port):
    """Labels of every series that the server has from the agent, less those that scraping adds."""
    answer = got(port, '/api/v1/query?query={job="agent",node="node-1"}')
    return {
        identity({name: value for name, value in each["metric"].items() if name not in ("job", "instance")})
        for each in answer[1]["data"]["result"]
    }


async def test_a_prometheus_that_scrapes_has_the_series_that_are_pushed(control, engine, tmp_path, settings, port):
    with agent(tmp_path, control.url, **settings), prometheus(tmp_path, port) as server:
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        await until(port, "/engines/e1/readyz", *READY)
        pushed: set[frozenset[tuple[str, str]]] = set()
        shown = kept = pushed
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not shown or not shown == pushed == kept:
                await asyncio.sleep(0.2)
                shown, kept = await asyncio.to_thread(scraped, port), await asyncio.to_thread(stored, server)
                take_pushed(control, pushed)
        names = {dict(labels)[METRIC_NAME] for labels in shown}
        assert names >= {"DCGM_FI_DEV_GPU_UTIL", "headworks_engine_ttft_seconds_bucket", "headworks_host_load1"}


async def test_a_series_that_ended_is_on_no_page(control, tmp_path, settings, port, state):
    with agent(tmp_path, control.url, **settings):
        await asyncio.to_thread(wait_for, lambda: shows_gpu(port, "1"), PATIENCE_SECONDS, "the GPU")
        with state.change() as machine:
            fault.lose(machine, 1)
        await asyncio.to_thread(wait_for, lambda: not shows_gpu(port, "1"), PATIENCE_SECONDS, "the end of its series")
        assert await asyncio.to_thread(shows_gpu, port, "0")


def shows_gpu(port, index):
    try:
        shown = scraped(port)
    except urllib.error.URLError:
        return False
    return any({METRIC_NAME: "DCGM_FI_DEV_GPU_UTIL", "gpu": index}.items() <= dict(each).items() for each in shown)


async def test_a_hook_takes_an_engine_out_waits_for_what_runs_and_ends_with_the_next_process(
    start_engine, control, tmp_path, settings, port
):
    running = start_engine("--model", "llama", "--speed", "0.5")
    hook = [sys.executable, "-m", "gpu_agent.cli", "pre-stop", "e1", "--limit", "30"]
    environment = {**settings, "HEADWORKS_AGENT_GPU_SOURCE": "none"}
    body = {"model": "llama", "prompt": "a", "max_tokens": 200, "ignore_eos": True, "stream": True}
    with agent(tmp_path, control.url, **environment):
        stream = await control.stream()
        stream.send(snapshot_event(3, node_content(e1=running.url)))
        await until(port, "/engines/e1/readyz", *READY)
        async with (
            aiohttp.ClientSession(running.url) as client,
            client.post("/v1/completions", json=body) as answer,
        ):
            await answer.content.readany()
            with Process(hook, log=tmp_path / "hook-log", environment=environment) as process:
                await until(port, "/engines/e1/readyz", *not_ready("engine_leaving"))
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while not any(each.get("leaving") for each in (await control.posted(REPORT)).get("engines", [])):
                        pass
                content = node_content(e1=running.url)
                content["engines"]["e1"]["cordoned"] = True
                stream.send(snapshot_event(4, content))
                await until(port, "/engines/e1/readyz", *not_ready("engine_leaving", "engine_cordoned"))
                assert still_runs(process), "a request still runs"
                # The stream ends, and with it the wait.
                while await answer.content.readany():
                    pass
                assert await asyncio.to_thread(process.wait) == 0
        stream.send(snapshot_event(5, node_content(e1=running.url)))
        running.process.stop()
        await until(port, "/engines/e1/readyz", *not_ready("engine_leaving", "engine_down"))
        start_engine("--model", "llama", "--port", str(running.port))
        await until(port, "/engines/e1/readyz", *READY)


async def test_a_hook_whose_agent_is_killed_asks_the_next_one(start_engine, control, tmp_path, settings, port):
    running = start_engine("--model", "llama", "--speed", "0.5")
    hook = [sys.executable, "-m", "gpu_agent.cli", "pre-stop", "e1", "--limit", "60"]
    environment = {**settings, "HEADWORKS_AGENT_GPU_SOURCE": "none"}
    body = {"model": "llama", "prompt": "a", "max_tokens": 400, "ignore_eos": True, "stream": True}
    async with (
        aiohttp.ClientSession(running.url) as client,
        client.post("/v1/completions", json=body) as answer,
    ):
        await answer.content.readany()
        with agent(tmp_path, control.url, **environment) as first:
            (await control.stream()).send(snapshot_event(3, node_content(e1=running.url)))
            await until(port, "/engines/e1/readyz", *READY)
            with Process(hook, log=tmp_path / "hook-log", environment=environment) as process:
                await until(port, "/engines/e1/readyz", *not_ready("engine_leaving"))
                os.kill(first.pid, signal.SIGKILL)
                await asyncio.to_thread(first.wait)
                with agent(tmp_path, control.url, **environment):
                    await until(port, "/engines/e1/readyz", *not_ready("engine_leaving"))
                    assert still_runs(process), "a request still runs"
                    while await answer.content.readany():
                        pass
                    assert await asyncio.to_thread(process.wait) == 0


def still_runs(process):
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def test_a_hook_without_an_agent_says_so(tmp_path, port):
    listen = {"HEADWORKS_AGENT_LISTEN": f"127.0.0.1:{port}"}
    for environment, said in (({}, "set HEADWORKS_AGENT_LISTEN"), (listen, "the agent does not answer")):
        log = tmp_path / "log"
        command = [sys.executable, "-m", "gpu_agent.cli", "pre-stop", "e1", "--limit", "1"]
        with Process(command, log=log, environment=environment) as process:
            assert process.wait() == 2
        assert said in log.read_text()


async def test_a_spot_notice_is_an_event_and_takes_the_node_out(start_engine, control, tmp_path, settings, port):
    notice = tmp_path / "notice"
    running = start_engine("--model", "llama")

    async def until_told(leaving: list[bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while [each.get("leaving", False) for each in (await control.posted(REPORT)).get("engines", [])] != leaving:
                pass

    environment = {**settings, "HEADWORKS_AGENT_GPU_SOURCE": "none", "HEADWORKS_AGENT_SPOT_NOTICE": f"file:{notice}"}
    with agent(tmp_path, control.url, **environment):
        (await control.stream()).send(snapshot_event(3, node_content(e1=running.url)))
        await until(port, "/readyz", *READY)
        await until_told([False])
        notice.touch()
        await until(port, "/readyz", *not_ready("spot_notice"))
        events = await control.posted(EVENTS_PATH)
        assert [(each["kind"], each["severity"]) for each in events] == [("spot_notice", "critical")]
        await until_told([True])
        notice.unlink()
        await until_told([False])
