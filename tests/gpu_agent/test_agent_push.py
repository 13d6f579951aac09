"""The agent's process pushes samples and events, and keeps them while the control plane is away, `kill -9` included."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
import subprocess
from itertools import chain
from math import isnan

import pytest

from simulator.gpu import fault
from tests.disks import mounted
from tests.gpu_agent.processes import agent
from tests.services import free_port
from tests.wire.examples import node_content
from tests.wire.fake_control import DEADLINE_SECONDS, fake_control, snapshot_event
from wire.push import EVENTS_PATH, WRITE_PATH
from wire.remote_write import Bounds, decode_series
from wire.write_body import METRIC_NAME, STALE_BITS

BOUNDS = Bounds()


@pytest.fixture
def quick(environment):
    return {**environment, "HEADWORKS_AGENT_PROBE_INTERVAL_SECONDS": "0.2"}


@pytest.fixture
def without_gpus(quick):
    """For tests that tell each event of engines: on a machine with more to do than cores a GPU may seem silent."""
    return {**quick, "HEADWORKS_AGENT_GPU_SOURCE": "none"}


async def body_where(control, condition):
    """The next body of samples for which `condition(values by name and labels)` holds."""
    async with asyncio.timeout(3 * DEADLINE_SECONDS):
        while True:
            body = await control.posts[WRITE_PATH].get()
            found = {(each.labels[METRIC_NAME], each.labels.get("gpu", "")): each.samples[0][1] for each in body}
            if condition(found):
                return body


def rows(body):
    """Every sample of a body, as things to compare: a stale marker is a NaN, which equals nothing."""
    return {
        (tuple(sorted(each.labels.items())), at_ms, struct.pack("<d", value))
        for each in body
        for at_ms, value in each.samples
    }


def spooled(file):
    """The records that wait in a spool's file, which another process may be writing."""
    if not file.exists():
        return []
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        return [body for (body,) in connection.execute("SELECT body FROM records ORDER BY number")]


def time_of(body, name, gpu):
    """When a sample of that GPU was so."""
    return next(
        each.samples[0][0] for each in body if (each.labels[METRIC_NAME], each.labels.get("gpu")) == (name, gpu)
    )


def is_stale(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0] == STALE_BITS


async def test_it_pushes_what_it_knows_of_gpus_engines_and_itself(control, engine, tmp_path, quick):
    with agent(tmp_path, control.url, **quick):
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        # Each part goes out when it is read.
        parts = ("headworks_engine_up", ""), ("DCGM_FI_DEV_GPU_UTIL", "0"), ("headworks_agent_gpu_source_info", "")
        bodies = [await body_where(control, lambda found, part=part: part in found) for part in parts]
    body = list(chain(*bodies))
    assert all(each.labels["node"] == "node-1" for each in body)
    by_name = {each.labels[METRIC_NAME]: each for each in body}
    assert by_name["headworks_engine_generation_tokens_total"].samples[0][1] == 150
    assert by_name["headworks_engine_ttft_seconds_bucket"].labels.keys() == {
        METRIC_NAME, "node", "engine", "kind", "model", "pool", "le",
    }  # fmt: skip
    assert by_name["DCGM_FI_DEV_GPU_UTIL"].labels["modelName"] == "Simulated NVIDIA H200"
    assert by_name["headworks_agent_gpu_source_info"].labels["source"] == "simulated"
    assert by_name["headworks_agent_resident_bytes"].samples[0][1] > 0


async def test_values_of_a_gpu_that_hangs_end_and_it_is_told_down(control, tmp_path, quick, state):
    with agent(tmp_path, control.url, **quick):
        body = await body_where(control, lambda found: found.get(("headworks_gpu_up", "1")) == 1)
        last_answer_ms = time_of(body, "headworks_gpu_up", "1")
        with state.change() as machine:
            fault.hang(machine, 1)
        body = await body_where(control, lambda found: found.get(("headworks_gpu_up", "1")) == 0)
        ended = {each.labels[METRIC_NAME] for each in body if is_stale(each.samples[0][1])}
        assert {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "headworks_gpu_clock_event_active"} <= ended
        later = await body_where(control, lambda found: found.get(("headworks_gpu_up", "1")) == 0)
        assert time_of(later, "headworks_gpu_up", "1") > time_of(body, "headworks_gpu_up", "1") > last_answer_ms
        body = await body_where(control, lambda found: found.get(("headworks_gpu_up", "1")) == 0)
        assert {each.labels[METRIC_NAME] for each in body if each.labels.get("gpu") == "1"} == {
            "headworks_gpu_up", "DCGM_FI_DEV_XID_ERRORS", "headworks_gpu_xid_errors_total",
            "headworks_gpu_xid_class_total",
        }  # fmt: skip
        assert "DCGM_FI_DEV_GPU_UTIL" in {each.labels[METRIC_NAME] for each in body if each.labels.get("gpu") == "0"}


async def test_engines_are_looked_at_while_nvml_hangs_in_its_opening(control, engine, tmp_path, quick, state):
    with state.change() as machine:
        machine.init_hangs = True
    with agent(tmp_path, control.url, HEADWORKS_AGENT_NVML_OPEN_SECONDS="600", **quick):
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        await body_where(control, lambda found: found.get(("headworks_engine_up", "")) == 1)
        engine.pages["/health"] = (503, b"")
        (down,) = await control.posted(EVENTS_PATH)
        assert (down["kind"], down["subject"]) == ("engine_down", "e1")


async def test_an_engine_that_goes_and_comes_back_is_two_events(control, engine, tmp_path, quick):
    with agent(tmp_path, control.url, **quick):
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        await body_where(control, lambda found: found.get(("headworks_engine_up", "")) == 1)
        assert control.posts[EVENTS_PATH].empty(), "an engine that is up at first sight is no news"
        engine.pages["/health"] = (503, b"")
        (down,) = await control.posted(EVENTS_PATH)
        assert (down["kind"], down["subject"], down["severity"]) == ("engine_down", "e1", "critical")
        assert down["detail"] == "engine e1 (vllm, pool short) is dead: /health: answered 503"
        engine.pages["/health"] = (200, b"")
        (up,) = await control.posted(EVENTS_PATH)
        assert (up["kind"], up["subject"], up["severity"]) == ("engine_up", "e1", "info")


async def test_an_engine_that_hangs_is_told_once_and_again_when_it_goes_on(control, engine, tmp_path, without_gpus):
    page = "vllm:num_requests_running 2\nvllm:generation_tokens_total {}\n"
    page += "vllm:iteration_tokens_total_count 1\n"
    engine.pages["/metrics"] = (200, page.format(7).encode())
    with agent(tmp_path, control.url, HEADWORKS_AGENT_ENGINE_HUNG_SECONDS="1", **without_gpus):
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        await body_where(control, lambda found: found.get(("headworks_engine_hung", "")) == 0)
        (hung,) = await control.posted(EVENTS_PATH)
        assert (hung["kind"], hung["subject"], hung["severity"]) == ("engine_hung", "e1", "critical")
        said = "engine e1 (vllm, pool short) is hung: requests running 2, nothing moved since "
        assert hung["detail"].startswith(said)
        # No look of these is told again.
        for _ in range(3):
            await body_where(control, lambda found: found.get(("headworks_engine_hung", "")) == 1)
        engine.pages["/metrics"] = (200, page.format(8).encode())
        (well,) = await control.posted(EVENTS_PATH)
        assert (well["kind"], well["subject"], well["severity"]) == ("engine_up", "e1", "info")
        assert well["detail"] == "engine e1 (vllm) works again"


async def test_an_engine_that_hangs_and_is_then_down_is_two_ills_with_one_end(control, engine, tmp_path, without_gpus):
    page = b"vllm:num_requests_running 1\nvllm:iteration_tokens_total_count 1\n"
    engine.pages["/metrics"] = (200, page)
    with agent(tmp_path, control.url, HEADWORKS_AGENT_ENGINE_HUNG_SECONDS="0.5", **without_gpus):
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        assert [event["kind"] for event in await control.posted(EVENTS_PATH)] == ["engine_hung"]
        engine.pages["/health"] = (503, b"")
        assert [event["kind"] for event in await control.posted(EVENTS_PATH)] == ["engine_down"]
        engine.pages |= {"/health": (200, b""), "/metrics": (200, page.replace(b"running 1", b"running 0"))}
        assert [event["kind"] for event in await control.posted(EVENTS_PATH)] == ["engine_up"]


async def test_the_end_of_a_hang_is_told_though_a_look_that_could_not_tell_came_before(
    control, engine, tmp_path, without_gpus
):
    running, iterations = b"vllm:num_requests_running 1\n", b"vllm:iteration_tokens_total_count 1\n"
    engine.pages["/metrics"] = (200, running + iterations)
    with agent(tmp_path, control.url, HEADWORKS_AGENT_ENGINE_HUNG_SECONDS="0.5", **without_gpus):
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        assert [event["kind"] for event in await control.posted(EVENTS_PATH)] == ["engine_hung"]
        engine.pages["/metrics"] = (200, running)
        # Series that are gone end with a stale marker, which is a NaN.
        await body_where(control, lambda found: isnan(found.get(("headworks_engine_hung", ""), 0)))
        assert control.posts[EVENTS_PATH].empty(), "nothing says that it works"
        engine.pages["/metrics"] = (200, running + iterations.replace(b" 1", b" 2"))
        assert [event["kind"] for event in await control.posted(EVENTS_PATH)] == ["engine_up"]


async def test_an_engine_that_is_down_at_first_sight_is_told(control, engine, tmp_path, quick):
    engine.pages["/health"] = (500, b"")
    with agent(tmp_path, control.url, **quick):
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        (down,) = await control.posted(EVENTS_PATH)
        assert (down["kind"], down["node"]) == ("engine_down", "node-1")


async def test_what_is_told_while_the_control_plane_is_away_outlives_a_kill_and_arrives(engine, tmp_path, quick, state):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    metrics, events = (tmp_path / "state" / f"{name}.spool" for name in ("metrics", "events"))
    with agent(tmp_path, url, **quick) as process:
        async with fake_control(port) as control:
            (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
            await body_where(control, lambda found: found.get(("headworks_engine_up", "")) == 1)
            await body_where(control, lambda found: found.get(("headworks_gpu_up", "1")) == 1)
        with state.change() as machine:
            fault.throw_xid(machine, 1, 79)
        engine.pages["/health"] = (503, b"")
        await asyncio.to_thread(process.wait_until, lambda: len(spooled(events)) == 2, "both events in the spool")
        await asyncio.to_thread(process.wait_until, lambda: len(spooled(metrics)) >= 10, "samples in the spool")
        process.kill()
    kept = [rows(decode_series(body, BOUNDS)) for body in spooled(metrics)]
    with agent(tmp_path, url, **quick) as process:
        await asyncio.to_thread(
            process.wait_until, lambda: len(spooled(metrics)) >= len(kept) + 3, "samples of the second run"
        )
        async with fake_control(port) as control:
            taken = []
            async with asyncio.timeout(3 * DEADLINE_SECONDS):
                while spooled(metrics) or spooled(events):  # noqa: ASYNC110 - a file has no event
                    await asyncio.sleep(0.05)
            while not control.posts[WRITE_PATH].empty():
                taken.append(rows(control.posts[WRITE_PATH].get_nowait()))
            told = []
            while not control.posts[EVENTS_PATH].empty():
                told += control.posts[EVENTS_PATH].get_nowait()
    assert [body for body in kept if body not in taken] == [], "nothing is lost"
    assert taken[: len(kept)] == kept, "in the order in which it was measured"
    ids = [event["id"] for event in told]
    assert len(ids) == len(set(ids)), "nothing is sent twice"
    assert {event["kind"] for event in told[:2]} == {"xid", "engine_down"}
    assert [event["kind"] for event in told].count("xid") == 1


@pytest.fixture
def state_disk(tmp_path):
    """The agent's state folder, on a disk of its own."""
    with mounted(tmp_path / "state", "size=16m,mode=700") as place:
        yield place


async def test_with_a_state_folder_that_cannot_be_written_it_goes_on_and_names_it(
    control, engine, tmp_path, quick, state, state_disk
):
    with agent(tmp_path, control.url, **quick):
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        await body_where(control, lambda found: found.get(("headworks_engine_up", "")) == 1)
    await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,ro", str(state_disk)], check=True)
    with agent(tmp_path, control.url, **quick) as process:
        stream = await control.stream()
        await body_where(control, lambda found: found.get(("headworks_gpu_up", "1")) == 1)
        stream.send(snapshot_event(4, node_content(e1=engine.url, e2=engine.url)))
        # One that cannot be sent at once, as nothing else can be done with it, is lost; the next ones arrive.
        control.refuse[WRITE_PATH].append((503, "unavailable"))
        control.refuse[EVENTS_PATH].append((503, "unavailable"))
        with state.change() as machine:
            fault.throw_xid(machine, 1, 79)
        await body_where(control, lambda found: found.get(("headworks_gpu_up", "1")) == 1)
        told = await control.posted(EVENTS_PATH)
        assert [event["kind"] for event in told] == ["xid"]
        for named in ("metrics.spool", "events.spool", "revision 4 runs but is not kept on disk"):
            await asyncio.to_thread(process.wait_until, lambda named=named: named in process.log.read_text(), named)
