"""What the agent costs its node: memory and CPU, its NVML child included, and what a hung part does to the others.

A real agent process reads eight simulated GPUs through the simulated NVML library, which `simulator.gpu.drive` keeps
moving, NVLinks, profiling and processes included, and eight engines whose pages are a real vLLM's of 614 lines,
everything every 5 s; looks at its host every 15 s; pushes to a control plane that only takes; and serves its own page
to a Prometheus that reads it every 15 s. Its environment is that of its unit in deploy/. It is measured for 45 s. Then
one GPU hangs and one engine stops answering, for 30 s: how much later are samples of the others read, and taken, than
before? That is the 95th percentile then less the median before, so that a busy machine counts against the agent: parts
are read together, and a single late reading shows.

Resident is what both processes hold between them: a page of the interpreter's file that both have mapped is in memory
once. The sums of the kernel's RSS (such a page counts twice) and PSS (by share, all other processes' included) stand
below.

Beside it a peer: processor time of one page through the agent's scanner and through prometheus_client's parser.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import aiohttp
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

import gpu_agent
from bench.support.compiled import compiled, modules_of
from bench.support.memory import Memory, children, memory_of, resident_together
from bench.support.processes import cpu_seconds, main_thread_cpu_seconds, running
from bench.support.report import Targets, report
from bench.support.snapshot_server import SnapshotServer
from bench.support.unit import environment_of
from controlplane.demo.ports import free_port
from simulator.gpu import fault
from simulator.gpu.build import build
from simulator.gpu.state import Process as GpuProcess
from simulator.gpu.state import StateFile
from wire.engine_pages.numbers import readings
from wire.engine_pages.scan import Scan
from wire.remote_write import Bounds, decode_series
from wire.write_body import METRIC_NAME

NODE = "bench"
GPUS = ENGINES = 8
INTERVAL_SECONDS = 5.0
WARM_UP_SECONDS, CALM_SECONDS, HUNG_SECONDS = 12, 45, 30
START_SECONDS = 60
USUAL_PERCENT, LATE_PERCENT = 50, 95
PEER_PAGES = 40
PAGE = Path(__file__).resolve().parents[1] / "tests/wire/engine_pages/data/vllm-0.32.0-metrics.txt"
UNIT = "headworks-agent.service"
SCRAPE_SECONDS = 15
TARGETS: Targets = {
    "resident_mb": ("at most", 60.0),
    "cpu_percent_of_a_core": ("at most", 2.0),
    # A reading waits HEADWORKS_AGENT_GPU_ANSWER_SECONDS of it for a GPU that hangs.
    "gpus_delayed_by_a_hung_one_ms": ("at most", 100.0),
    "engines_delayed_by_a_hung_one_ms": ("at most", 100.0),
}


class Arrival(NamedTuple):
    """One sample that was taken. `at_ms` and `arrived_ms`: Unix time at which it was so, and at which it came."""

    part: str
    at_ms: int
    arrived_ms: float


class Control(SnapshotServer):
    """Notes when the samples of each GPU and engine came."""

    def __init__(self, engine_ports: Iterable[int]) -> None:
        engine = {"kind": "vllm", "pool": "bench", "model": "bench/model"}
        engines = {f"e{place}": {**engine, "url": f"http://127.0.0.1:{p}"} for place, p in enumerate(engine_ports)}
        super().__init__({"kind": "node", "schema": 1, "node": {"name": NODE}, "engines": engines})
        self.parts = {f"gpu{place}" for place in range(GPUS)} | engines.keys()
        self.arrivals: list[Arrival] = []
        self.samples = 0

    async def _write(self, request: web.Request) -> web.Response:
        body, now_ms = await request.read(), time.time() * 1000
        series = decode_series(body, Bounds())
        self.samples += len(series)
        for each in series:
            labels = each.labels
            if labels[METRIC_NAME] in ("headworks_gpu_up", "headworks_engine_up"):
                part = f"gpu{labels['gpu']}" if "gpu" in labels else labels["engine"]
                self.arrivals.append(Arrival(part, each.samples[0][0], now_ms))
        return web.Response(status=204)


class Scrapes:
    """A Prometheus that reads the agent's own page."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lines: list[int] = []
        self._seconds: list[float] = []

    async def run(self) -> None:
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            while True:
                begun = time.monotonic()
                async with session.get(self._url) as response:
                    self._lines.append((await response.read()).count(b"\n"))
                self._seconds.append(time.monotonic() - begun)
                await asyncio.sleep(SCRAPE_SECONDS)

    def figures(self) -> dict[str, float]:
        return {
            "own_page_lines": statistics.median(self._lines),
            "own_page_answered_in_ms": statistics.median(self._seconds) * 1000,
        }


async def engines(stack: AsyncExitStack, folder: Path, count: int) -> tuple[Process, list[int]]:
    log = folder / f"engines-{count}.log"
    arguments = ("bench.support.engine_pages", str(PAGE), str(count))
    process = await stack.enter_async_context(running(log, *arguments, stdout=PIPE))
    assert process.stdout is not None
    ports = [int(port) for port in (await process.stdout.readline()).split()]
    if len(ports) != count:
        raise RuntimeError(f"the engines' pages are not served: {log.read_text()[-2000:]}")
    return process, ports


async def simulated_gpus(
    stack: AsyncExitStack, folder: Path, processes: Iterable[int]
) -> tuple[StateFile, dict[str, str]]:
    """The state file, and the settings with which an agent reads it through NVML. `processes` use every GPU."""
    state = StateFile(folder / "gpus.json")
    library = await asyncio.to_thread(build, folder / "nvml")
    arguments = (str(state.path), "--gpus", str(GPUS), "--seed", "1", "--name", NODE)
    await stack.enter_async_context(running(folder / "drive.log", "simulator.gpu.drive", *arguments))
    await until(state.path.exists, "the state file of the GPUs")
    with state.change() as machine:
        for gpu in machine.gpus:
            gpu.processes = [GpuProcess(pid, 1 << 30) for pid in processes]
    return state, {
        "HEADWORKS_FAKE_NVML_STATE": str(state.path),
        "HEADWORKS_AGENT_NVML_LIBRARY": str(library),
        "HEADWORKS_AGENT_GPU_SOURCE": "nvml",
        "HEADWORKS_AGENT_KMSG_PATH": str(folder / "kmsg"),
        "HEADWORKS_AGENT_PROBE_INTERVAL_SECONDS": str(INTERVAL_SECONDS),
        "HEADWORKS_AGENT_GPU_INTERVAL_SECONDS": str(INTERVAL_SECONDS),
    }


async def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {START_SECONDS} s for {what}")
        await asyncio.sleep(0.05)


async def bench() -> dict[str, float]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headworks-bench-")))
        (folder / "kmsg").touch()
        others, ports = await engines(stack, folder, ENGINES - 1)
        one, its_port = await engines(stack, folder, 1)
        state, settings = await simulated_gpus(stack, folder, (others.pid, one.pid))
        control = Control([*ports, *its_port])
        await control.start()
        stack.push_async_callback(control.stop)
        address = f"127.0.0.1:{free_port()}"
        modules = ("pynvml", *modules_of(gpu_agent))
        environment = {
            **settings,
            **await asyncio.to_thread(compiled, modules, folder / "compiled", environment_of(UNIT)),
            "HEADWORKS_AGENT_JOIN_TOKEN": control.join_token,
            "HEADWORKS_AGENT_LISTEN": address,
        }
        options = ("--control-url", control.url, "--name", NODE, "--state-dir", str(folder / "state"))
        agent = await stack.enter_async_context(
            running(folder / "agent.log", "gpu_agent.cli", *options, environment=environment)
        )
        await until(lambda: {arrival.part for arrival in control.arrivals} == control.parts, "all samples")
        scrapes = Scrapes(f"http://{address}/metrics")
        reading = asyncio.create_task(scrapes.run())
        await asyncio.sleep(WARM_UP_SECONDS)
        figures = await calm(agent.pid, control)
        figures |= await hung(state, one, control, figures)
        if reading.done():
            # It ends only by failing.
            reading.result()
        reading.cancel()
        await asyncio.wait([reading])
        return figures | scrapes.figures() | peer()


async def calm(agent: int, control: Control) -> dict[str, float]:
    (child,) = children(agent)
    cpu_before = [cpu_seconds(agent), cpu_seconds(child), main_thread_cpu_seconds(agent)]
    samples_before, begun = control.samples, time.monotonic()
    control.arrivals.clear()
    together: list[int] = []
    apart: list[tuple[Memory, Memory]] = []
    while time.monotonic() - begun < CALM_SECONDS:
        together.append(resident_together((agent, child)))
        apart.append((memory_of(agent), memory_of(child)))
        await asyncio.sleep(1)
    seconds = time.monotonic() - begun
    cpu_after = [cpu_seconds(agent), cpu_seconds(child), main_thread_cpu_seconds(agent)]
    agent_cpu, child_cpu, loop_cpu = (
        (after - before) / seconds * 100 for before, after in zip(cpu_before, cpu_after, strict=True)
    )
    return {
        "resident_mb": max(together) / 1e6,
        "sum_of_both_rss_mb": max(one.resident + other.resident for one, other in apart) / 1e6,
        "sum_of_both_pss_mb": max(one.proportional + other.proportional for one, other in apart) / 1e6,
        "agent_rss_mb": max(one.resident for one, _ in apart) / 1e6,
        "nvml_child_rss_mb": max(other.resident for _, other in apart) / 1e6,
        "cpu_percent_of_a_core": agent_cpu + child_cpu,
        "agent_cpu_percent": agent_cpu,
        "agent_event_loop_cpu_percent": loop_cpu,
        "nvml_child_cpu_percent": child_cpu,
        "samples_per_second": (control.samples - samples_before) / seconds,
        **{f"calm_{name}": value for name, value in delays(control.arrivals, USUAL_PERCENT).items()},
    }


async def hung(state: StateFile, engine: Process, control: Control, before: Mapping[str, float]) -> dict[str, float]:
    """One GPU hangs, one engine stops; how much later than `before` the samples of the others are read and taken."""
    with state.change() as machine:
        fault.hang(machine, GPUS - 1)
    engine.send_signal(signal.SIGSTOP)
    control.arrivals.clear()
    await asyncio.sleep(HUNG_SECONDS)
    ill = {f"gpu{GPUS - 1}", f"e{ENGINES - 1}"}
    others = [arrival for arrival in control.arrivals if arrival.part not in ill]
    lately_ms = (time.time() - 2 * INTERVAL_SECONDS) * 1000
    if silent := control.parts - ill - {each.part for each in others if each.arrived_ms > lately_ms}:
        raise RuntimeError(f"samples of parts that do not hang stopped as well: {sorted(silent)}")
    later = {name: value - before[f"calm_{name}"] for name, value in delays(others, LATE_PERCENT).items()}
    return {
        f"{kind}_delayed_by_a_hung_one_ms": max(0.0, later[f"{kind}_read_late_ms"], later[f"{kind}_age_when_taken_ms"])
        for kind in ("gpus", "engines")
    }


def delays(arrivals: Iterable[Arrival], percent: int) -> dict[str, float]:
    """How late GPUs and engines were read, and how old their samples were when they were taken: that percentile."""
    found = {}
    for kind in ("gpus", "engines"):
        of_kind = [arrival for arrival in arrivals if arrival.part.startswith("gpu") == (kind == "gpus")]
        found[f"{kind}_read_late_ms"] = late_ms(of_kind, percent)
        found[f"{kind}_age_when_taken_ms"] = age_ms(of_kind, percent)
    return found


def late_ms(arrivals: Iterable[Arrival], percent: int) -> float:
    """How much longer than an interval the times between two readings of a part were."""
    read = defaultdict(set)
    for arrival in arrivals:
        read[arrival.part].add(arrival.at_ms)
    gaps = sorted(after - before for times in read.values() for before, after in pairwise(sorted(times)))
    return max(0.0, gaps[len(gaps) * percent // 100] - INTERVAL_SECONDS * 1000)


def age_ms(arrivals: Iterable[Arrival], percent: int) -> float:
    """The time from a reading until its samples were taken."""
    ages = sorted(each.arrived_ms - each.at_ms for each in arrivals)
    return ages[len(ages) * percent // 100]


def peer() -> dict[str, float]:
    page = PAGE.read_bytes()
    ours, theirs = [], []
    for _ in range(PEER_PAGES):
        begun = time.process_time()
        scan = Scan("vllm", "text/plain")
        scan.feed(page)
        found = readings("vllm", scan.end())
        ours.append(time.process_time() - begun)
        begun = time.process_time()
        families = list(text_string_to_metric_families(page.decode()))
        theirs.append(time.process_time() - begun)
        if not found or not families:
            raise RuntimeError("a page without metrics")
    return {
        "cpu_ms_per_page": statistics.median(ours) * 1000,
        "peer_prometheus_client_cpu_ms_per_page": statistics.median(theirs) * 1000,
    }


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if every target holds."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    return report("agent", __doc__, asyncio.run(bench()), TARGETS)


if __name__ == "__main__":
    sys.exit(main())
