"""The agent of one node: follows its slice, looks at its engines and GPUs, reports, pushes samples and events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpu_agent.acts.journal import Journal
from gpu_agent.acts.runner import ActRunner
from gpu_agent.acts.tools import Tools
from gpu_agent.engines.details import EngineDetails
from gpu_agent.engines.keys import EngineKeys
from gpu_agent.engines.look import Look, Wanted, look_at
from gpu_agent.engines.pages import EnginePages
from gpu_agent.engines.probes import ProbeOptions, Probes
from gpu_agent.engines.samples import engine_samples
from gpu_agent.engines.tell import Told
from gpu_agent.engines.watch import EngineWatch, same_engine
from gpu_agent.events import Reporter
from gpu_agent.host.processes import ProcessMap
from gpu_agent.host.watch import HostOptions, HostWatch
from gpu_agent.nvml.collector import CollectorOptions, GpuCollector
from gpu_agent.nvml.metrics import samples as gpu_samples
from gpu_agent.nvml.processes import sees_host_pids
from gpu_agent.nvml.readings import GpuReadings, Source
from gpu_agent.nvml.reports import gpu_problems, gpu_reports
from gpu_agent.page.options import PageOptions
from gpu_agent.page.readiness import engine_reasons, node_reasons
from gpu_agent.policy import NodePolicy
from gpu_agent.reports import Reports
from gpu_agent.samples import Sample
from gpu_agent.telemetry import Telemetry
from gpu_agent.usage import own_samples
from wire.messages import MAX_ENGINES, EngineReport, Event, NodeReport
from wire.problems import Problem
from wire.push import EventPush, MetricPush
from wire.snapshot import NodeEngine, NodeSnapshot, Snapshot, SnapshotRefused
from wire.spool import Spool
from wire.target import Reenrol, TargetClient

if TYPE_CHECKING:
    from gpu_agent.engines.discovery import Discovery

log = logging.getLogger("headworks.agent")
_LOG_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.CRITICAL}
# Parts that give samples beside the engines, whose names hold no colon.
_GPUS, _OWN, _HOST, _ENGINE = "gpus", "agent", "host", "engine:"
_DISCOVERY_SECONDS = 60


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
    engine_hung_seconds: float
    probes: ProbeOptions
    page_limit_bytes: int
    engine_series: tuple[str, ...] | None
    engine_ports: tuple[int, ...]
    hostname_label: str
    spool_bytes: int
    event_spool_bytes: int
    gpus: CollectorOptions
    policy: NodePolicy
    act_seconds: float
    host: HostOptions
    page: PageOptions | None


class Agent:
    """Runs one enrolled node until cancelled. `enrol_again`: see TargetClient."""

    def __init__(self, options: Options, enrol_again: Reenrol | None = None) -> None:
        self._options = options
        self._slice: NodeSnapshot | None = None
        # Not known until the first reading.
        self._source: Source | None = None
        # The part of a report that the GPUs give.
        self._hardware = NodeReport(version=options.version)
        self._seen: dict[str, EngineReport] = {}
        # Set when something is worth a report before the next one is due.
        self._changed = asyncio.Event()
        # Set when there may be engines to look at before the next round is due.
        self._adopted = asyncio.Event()
        self._client = TargetClient(
            control_url=options.control_url,
            state_dir=options.state_dir,
            on_snapshot=self._adopt,
            enrol_again=enrol_again,
        )
        self._spools = {
            "metrics": Spool(options.state_dir / "metrics.spool", limit_bytes=options.spool_bytes),
            "events": Spool(options.state_dir / "events.spool", limit_bytes=options.event_spool_bytes),
        }
        self._event_push = EventPush(self._client, self._spools["events"])
        self._metric_push = MetricPush(self._client, self._spools["metrics"])
        self._telemetry = Telemetry(options.name, self._metric_push)
        self._reporter = Reporter(options.name, self._on_event)
        self._collector = GpuCollector(options.gpus, self._on_event)
        self._processes = ProcessMap(options.host.proc)
        self._host_pids = sees_host_pids()
        self._host = HostWatch(options.host, self._processes)
        self._discovery: Discovery | None = None
        # Made when it runs, before any slice is adopted.
        self._acts: ActRunner
        self._details: EngineDetails

    async def run(self) -> None:
        pages = EnginePages(
            timeout_seconds=self._options.page_timeout_seconds, limit_bytes=self._options.page_limit_bytes
        )
        keys = EngineKeys(self._options.policy)
        wanted = Wanted(self._options.policy, self._options.engine_series, self._processes.command_line)
        self._details = EngineDetails(pages, self._options.policy, self._processes.command_line)
        probes = Probes(pages, self._tell, keys, self._options.probes)
        watch = EngineWatch(
            pages,
            self._looked,
            self._tell,
            probes,
            hung_seconds=self._options.engine_hung_seconds,
            wanted=wanted,
        )
        tools = Tools(
            look=lambda name, engine: look_at(pages, name, engine, wanted),
            expect_restart=watch.expect_restart,
            gpus=self._collector,
            keys=keys,
            act_seconds=self._options.act_seconds,
        )
        self._acts = ActRunner(
            Journal(self._options.state_dir / "acts.json"),
            self._options.policy,
            tools,
            self._changed.set,
            retry_seconds=self._options.probe_interval_seconds,
        )
        reports = Reports(
            self._client,
            self._node_report,
            self._changed,
            lambda report: self._acts.reported(report.acts),
            interval_seconds=self._options.report_interval_seconds,
            retry_seconds=self._options.probe_interval_seconds,
        )
        self._client.load_last_known_good()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._client.run())
                tasks.create_task(self._event_push.run())
                tasks.create_task(self._metric_push.run())
                tasks.create_task(self._telemetry.run())
                tasks.create_task(self._acts.run())
                tasks.create_task(self._keep_watching_host())
                if self._options.engine_ports:
                    tasks.create_task(self._keep_discovering(pages))
                if self._options.page is not None:
                    tasks.create_task(self._serve_pages(self._options.page))
                begun_seconds = asyncio.get_running_loop().time()
                # Between two readings, so that looks at many engines do not make answers of GPUs seem late.
                shortest_seconds = min(self._options.gpus.nvml.interval_seconds, self._options.probe_interval_seconds)
                tasks.create_task(self._keep_looking(watch, begun_seconds + shortest_seconds / 2))
                await self._collector.start()
                self._take(await self._collector.read())
                tasks.create_task(self._keep_reading(begun_seconds))
                # The first report must not say that a node with GPUs has none.
                tasks.create_task(reports.run())
        finally:
            await self._collector.stop()
            self._details.stop()
            await watch.stop()
            keys.close()
            await self._client.close()
            for spool in self._spools.values():
                spool.close()

    def _adopt(self, snapshot: Snapshot, revision: int) -> None:
        if not isinstance(snapshot, NodeSnapshot):
            raise SnapshotRefused([Problem("/kind", "kind", "an agent runs slices of kind 'node'")])
        if snapshot.node.name != self._options.name:
            raise SnapshotRefused([Problem("/node/name", "foreign_node", f"this is node {self._options.name!r}")])
        if len(snapshot.engines) > MAX_ENGINES:
            raise SnapshotRefused([Problem("/engines", "range", f"a node has at most {MAX_ENGINES} engines")])
        if snapshot.node.cordoned != self._cordoned:
            reason = snapshot.node.cordon_reason or "no reason given"
            log.info("cordoned is now %s (%s)", snapshot.node.cordoned, reason)
        before, self._slice = self._engines, snapshot
        # What was seen of an engine that is gone, or is another under its name, says nothing any more.
        self._seen = {
            name: seen for name, seen in self._seen.items() if same_engine(before.get(name), self._engines.get(name))
        }
        self._acts.adopt(snapshot)
        self._changed.set()
        self._adopted.set()

    @property
    def _engines(self) -> dict[str, NodeEngine]:
        return self._slice.engines if self._slice is not None else {}

    @property
    def _cordoned(self) -> bool:
        return self._slice is not None and self._slice.node.cordoned

    # GPUs.

    async def _keep_reading(self, begun_seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        due_seconds = begun_seconds
        while True:
            # From the beginning of a reading: one that waits for a hung GPU puts off no other.
            due_seconds = _next_due(due_seconds, clock(), self._options.gpus.nvml.interval_seconds)
            await asyncio.sleep(due_seconds - clock())
            self._take(await self._collector.read())

    def _take(self, readings: GpuReadings) -> None:
        self._source = readings.source
        self._telemetry.add(
            _GPUS,
            gpu_samples(
                readings,
                hostname=socket.gethostname(),
                rules=self._options.gpus.rules,
                hostname_label=self._options.hostname_label,
                engine_of=self._engine_of,
            ),
        )
        hardware = NodeReport(
            version=self._options.version,
            gpus=gpu_reports(readings, self._hardware.gpus),
            driver_version=readings.driver_version,
            gpu_source=readings.source,
            gpu_problems=gpu_problems(readings),
            simulated=readings.source == "simulated",
        )
        if hardware != self._hardware:
            self._hardware = hardware
            self._changed.set()

    def _engine_of(self, pid: int) -> str | None:
        # Where ids are not the host's, NVML's may be those of other processes here.
        return self._processes.engine_of(pid) if self._host_pids else None

    # Engines, and with each round of looks the samples of the agent itself.

    async def _keep_looking(self, watch: EngineWatch, begun_seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        due_seconds = begun_seconds
        while True:
            self._adopted.clear()
            engines = self._engines
            self._telemetry.keep_only({_GPUS, _OWN, _HOST, *(_ENGINE + name for name in engines)})
            self._details.keep_only(engines)
            watch.look(engines)
            self._telemetry.add(_OWN, self._own_samples())
            if clock() >= due_seconds:
                due_seconds = _next_due(due_seconds, clock(), self._options.probe_interval_seconds)
            # An engine that is new is looked at before its time.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due_seconds):
                    await self._adopted.wait()

    async def _keep_discovering(self, pages: EnginePages) -> None:
        # Late: few nodes look for engines that nobody has configured.
        from gpu_agent.engines.discovery import Discovery

        self._discovery = Discovery(pages, self._options.engine_ports)
        while True:
            if await self._discovery.look(engine.url for engine in self._engines.values()):
                self._changed.set()
            await asyncio.sleep(_DISCOVERY_SECONDS)

    async def _keep_watching_host(self) -> None:
        while True:
            self._telemetry.add(_HOST, await self._host.look(self._engines))
            await asyncio.sleep(self._options.host.interval_seconds)

    def _own_samples(self) -> list[Sample]:
        processes = {"agent": os.getpid()}
        if child_pid := self._collector.nvml.child_pid:
            processes["nvml"] = child_pid
        return own_samples(
            gpu_source=self._source,
            xid_sources=self._collector.xid_sources,
            processes=processes,
            spools=self._spools,
        )

    def _looked(self, engine: NodeEngine, look: Look) -> None:
        seen = self._details.add_to(look.report)
        # It may be gone from the slice since the look began.
        if not same_engine(self._engines.get(seen.name), engine):
            return
        self._details.looked(seen.name, engine, look)
        samples = [*engine_samples(seen.name, engine, look), *self._details.samples(seen.name, engine)]
        self._telemetry.add(_ENGINE + seen.name, samples)
        before = self._seen.get(seen.name)
        if seen == before:
            return
        self._seen[seen.name] = seen
        self._changed.set()
        if before is None or (before.state, before.version) != (seen.state, seen.version):
            log.info("engine %s is %s: %s", seen.name, seen.state, seen.error or seen.version or "")

    def _tell(self, name: str, told: Told) -> None:
        self._reporter.report(told.kind, name, told.severity, told.detail)

    def _on_event(self, event: Event) -> None:
        # On disk before anything else is done about it.
        self._event_push.put(event)
        _log_event(event)

    async def _serve_pages(self, page: PageOptions) -> None:
        # What few nodes use is imported where it is used: memory.
        from gpu_agent.page.pages import Pages
        from gpu_agent.page.server import PageServer

        pages = Pages(
            token=page.token,
            live=self._telemetry.live,
            node=lambda: node_reasons(self._slice, self._hardware.gpus),
            engine=lambda name: engine_reasons(self._slice, name, self._seen.get(name)),
        )
        await PageServer(page.host, page.port, pages.answer).run()

    def _node_report(self) -> NodeReport:
        """What is known now. An engine that was not seen yet is left out: nothing is known of it."""
        engines = [self._seen[name] for name in sorted(self._engines) if name in self._seen]
        configured = (engine.url for engine in self._engines.values())
        found = self._discovery.found(configured) if self._discovery is not None else []
        return msgspec.structs.replace(
            self._hardware,
            engines=engines,
            cordon_applied=self._cordoned,
            found_engines=found,
            acts=self._acts.reports(),
            allowed_acts=self._options.policy.allowed_acts,
        )


def _next_due(due_seconds: float, now_seconds: float, interval_seconds: float) -> float:
    """The next time at which something is due every interval; times that were missed are passed over."""
    missed = max(0.0, now_seconds - due_seconds) // interval_seconds
    return due_seconds + (missed + 1) * interval_seconds


def _log_event(event: Event) -> None:
    line = f"event {event.kind} on {event.subject}: {event.detail}"
    # Texts of the driver's may hold anything; it stays one line.
    log.log(_LOG_LEVELS[event.severity], "%s", " ".join(line.split()))
