"""The agent of one node: follows its slice, looks at its engines and GPUs, reports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from gpu_agent.engines import look_at
from gpu_agent.nvml.collector import CollectorOptions, GpuCollector
from gpu_agent.nvml.readings import GpuReadings
from gpu_agent.nvml.reports import gpu_reports
from gpu_agent.pages import EnginePages
from wire.messages import MAX_ENGINES, EngineReport, Event, NodeReport
from wire.problems import Problem
from wire.snapshot import NodeSnapshot, Snapshot, SnapshotRefused
from wire.target import Reenrol, TargetClient, TargetRefused

log = logging.getLogger("headworks.agent")
_LOG_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.CRITICAL}


@dataclass(frozen=True)
class Options:
    """One field a setting; gpu_agent/settings.py says what each is for."""

    control_url: str
    name: str
    state_dir: Path
    version: str
    report_interval_seconds: float
    probe_interval_seconds: float
    page_timeout_seconds: float
    page_limit_bytes: int
    gpus: CollectorOptions


class Agent:
    """Runs one enrolled node until cancelled. `enrol_again`: see TargetClient."""

    def __init__(self, options: Options, enrol_again: Reenrol | None = None) -> None:
        self._options = options
        self._slice: NodeSnapshot | None = None
        # The part of a report that the GPUs give.
        self._hardware = NodeReport(version=options.version)
        self._seen: dict[str, EngineReport] = {}
        # Set when something is worth a report before the next look.
        self._changed = asyncio.Event()
        self._client = TargetClient(
            control_url=options.control_url,
            state_dir=options.state_dir,
            on_snapshot=self._adopt,
            enrol_again=enrol_again,
        )

    async def run(self) -> None:
        collector = GpuCollector(self._options.gpus, _log_event)
        pages = EnginePages(
            timeout_seconds=self._options.page_timeout_seconds, limit_bytes=self._options.page_limit_bytes
        )
        self._client.load_last_known_good()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._client.run())
                # The first report must not say that a node with GPUs has none.
                await collector.start()
                self._take(await collector.read())
                tasks.create_task(self._keep_reading(collector))
                tasks.create_task(self._report(pages))
        finally:
            await collector.stop()
            await pages.close()
            await self._client.close()

    def _adopt(self, snapshot: Snapshot, revision: int) -> None:
        if not isinstance(snapshot, NodeSnapshot):
            raise SnapshotRefused([Problem("/kind", "kind", "an agent runs slices of kind 'node'")])
        if snapshot.node.name != self._options.name:
            raise SnapshotRefused([Problem("/node/name", "foreign_node", f"this is node {self._options.name!r}")])
        if len(snapshot.engines) > MAX_ENGINES:
            raise SnapshotRefused([Problem("/engines", "range", f"a node has at most {MAX_ENGINES} engines")])
        was_cordoned = self._slice is not None and self._slice.node.cordoned
        if snapshot.node.cordoned != was_cordoned:
            reason = snapshot.node.cordon_reason or "no reason given"
            log.info("cordoned is now %s (%s)", snapshot.node.cordoned, reason)
        self._slice = snapshot
        self._changed.set()

    async def _keep_reading(self, collector: GpuCollector) -> None:
        clock = asyncio.get_running_loop().time
        interval_seconds = self._options.gpus.nvml.interval_seconds
        due_seconds = clock() + interval_seconds
        while True:
            await asyncio.sleep(due_seconds - clock())
            # From the beginning of a reading: one that waits for a hung GPU puts off no other.
            due_seconds = clock() + interval_seconds
            self._take(await collector.read())

    def _take(self, readings: GpuReadings) -> None:
        hardware = NodeReport(
            version=self._options.version,
            gpus=gpu_reports(readings, self._hardware.gpus),
            driver_version=readings.driver_version,
            gpu_source=readings.source,
            simulated=readings.source == "simulated",
        )
        if hardware != self._hardware:
            self._hardware = hardware
            self._changed.set()

    async def _report(self, pages: EnginePages) -> None:
        clock = asyncio.get_running_loop().time
        posted: NodeReport | None = None
        failure: str | None = None
        due_seconds = clock()
        while True:
            self._changed.clear()
            report = await self._look_around(pages)
            if report != posted or clock() >= due_seconds:
                try:
                    await self._client.post("/api/v1/nodes/report", report)
                except (TargetRefused, aiohttp.ClientError, OSError) as error:
                    if failure is None:
                        log.warning("reports do not arrive: %s", error)
                    failure = str(error)
                else:
                    if failure is not None:
                        log.info("reports arrive again")
                    failure, posted = None, report
                    due_seconds = clock() + self._options.report_interval_seconds
            # A failed report is due at once, but is not tried more often than engines are looked at.
            wait_seconds = self._options.probe_interval_seconds
            if failure is None:
                wait_seconds = min(wait_seconds, due_seconds - clock())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0, wait_seconds)):
                    await self._changed.wait()

    async def _look_around(self, pages: EnginePages) -> NodeReport:
        watched = self._slice.engines if self._slice is not None else {}
        seen = await asyncio.gather(*(look_at(pages, name, engine) for name, engine in sorted(watched.items())))
        self._log_changes(seen)
        cordoned = self._slice is not None and self._slice.node.cordoned
        return msgspec.structs.replace(self._hardware, engines=seen, cordon_applied=cordoned)

    def _log_changes(self, seen: list[EngineReport]) -> None:
        for engine in seen:
            before = self._seen.get(engine.name)
            if before is None or (before.state, before.version) != (engine.state, engine.version):
                log.info("engine %s is %s: %s", engine.name, engine.state, engine.error or engine.version or "")
        self._seen = {engine.name: engine for engine in seen}


def _log_event(event: Event) -> None:
    line = f"event {event.kind} on {event.subject}: {event.detail}"
    # Texts of the driver's may hold anything; it stays one line.
    log.log(_LOG_LEVELS[event.severity], "%s", " ".join(line.split()))
