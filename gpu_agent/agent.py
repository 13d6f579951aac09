"""The agent of one node: follows its slice, looks at its engines and GPUs, reports, pushes samples and events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from gpu_agent.acts.journal import Journal
from gpu_agent.acts.runner import ActRunner
from gpu_agent.acts.tools import Tools
from gpu_agent.adapters.keeper import AdapterKeeper
from gpu_agent.engines.node_engines import EngineOptions, NodeEngines
from gpu_agent.engines.tell import Told
from gpu_agent.events import Reporter
from gpu_agent.host.processes import ProcessMap
from gpu_agent.host.watch import HostOptions, HostWatch
from gpu_agent.model_files.keeper import ModelFiles
from gpu_agent.nvml.collector import CollectorOptions, GpuCollector
from gpu_agent.nvml.host_pids import sees_host_pids
from gpu_agent.nvml.metrics import samples as gpu_samples
from gpu_agent.nvml.readings import GpuReadings, Source
from gpu_agent.nvml.reports import gpu_problems, gpu_reports
from gpu_agent.page.options import PageOptions
from gpu_agent.page.readiness import SPOT_NOTICE, engine_reasons, node_reasons
from gpu_agent.policy import NodePolicy
from gpu_agent.pre_stop import PreStop, drained
from gpu_agent.reports import Reports
from gpu_agent.rounds import next_due
from gpu_agent.samples import Sample
from gpu_agent.spot.watch import SpotWatch
from gpu_agent.telemetry import Telemetry
from gpu_agent.usage import own_samples
from wire.messages import MAX_ENGINES, UNREADABLE, EngineReport, Event, NodeReport
from wire.problems import Problem
from wire.push import EventPush, MetricPush
from wire.snapshot import NodeSnapshot, Snapshot
from wire.snapshot_checks import SnapshotRefused, decode_snapshot
from wire.spool import Spool
from wire.target import Reenrol, TargetClient, TargetRefused

log = logging.getLogger("headworks.agent")
_LOG_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.CRITICAL}
# Parts that give samples, beside the engines.
_GPUS, _OWN, _HOST = "gpus", "agent", "host"


@dataclass(frozen=True)
class Options:
    """One field a setting; gpu_agent/settings.py says what each is for."""

    control_url: str
    name: str
    state_dir: Path
    version: str
    report_interval_seconds: float
    engines: EngineOptions
    hostname_label: str
    spool_bytes: int
    event_spool_bytes: int
    gpus: CollectorOptions
    policy: NodePolicy
    act_seconds: float
    host: HostOptions
    page: PageOptions | None
    spot_notice: str


class Agent:
    """Runs one enrolled node until cancelled. `enrol_again`: see TargetClient."""

    def __init__(self, options: Options, enrol_again: Reenrol | None = None) -> None:
        self._options = options
        self._slice: NodeSnapshot | None = None
        self._revision = 0
        # Not known until the first reading.
        self._source: Source | None = None
        # The part of a report that the GPUs give.
        self._hardware = NodeReport(version=options.version)
        # Set when something is worth a report before the next one is due.
        self._changed = asyncio.Event()
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
        self._spot: SpotWatch | None = None
        if options.spot_notice:
            file = options.state_dir / "spot_notice.json"
            self._spot = SpotWatch(options.spot_notice, options.name, Reporter(options.name, self._on_spot_event), file)
        self._collector = GpuCollector(options.gpus, self._on_event)
        self._processes = ProcessMap(options.host.proc)
        self._host_pids = sees_host_pids()
        self._host = HostWatch(options.host, self._processes)
        # Made when it runs, before any slice is adopted.
        self._acts: ActRunner
        self._engines: NodeEngines
        self._files: ModelFiles
        self._pre_stop: PreStop

    async def run(self) -> None:
        options = self._options
        self._engines = NodeEngines(
            options.engines,
            options.policy,
            self._processes,
            self._telemetry,
            self._tell,
            self._changed.set,
            AdapterKeeper(options.state_dir / "adapters.json", options.policy, lambda: tools),
        )
        self._pre_stop = PreStop(
            lambda: self._engines.configured, lambda: self._engines.seen, self._drained, self._changed.set
        )
        self._files = ModelFiles(options.state_dir, self._client.get, self._changed.set)
        tools = Tools(
            look=self._engines.look,
            expect_restart=self._engines.expect_restart,
            gpus=self._collector,
            keys=self._engines.keys,
            files=self._files,
            act_seconds=options.act_seconds,
        )
        self._acts = ActRunner(
            Journal(options.state_dir / "acts.json"),
            options.policy,
            tools,
            self._changed.set,
            retry_seconds=options.engines.interval_seconds,
        )
        reports = Reports(
            self._client,
            self._node_report,
            self._changed,
            lambda report: self._acts.reported(report.acts),
            interval_seconds=options.report_interval_seconds,
            retry_seconds=options.engines.interval_seconds,
        )
        self._client.load_last_known_good()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._client.run())
                tasks.create_task(self._event_push.run())
                tasks.create_task(self._metric_push.run())
                tasks.create_task(self._telemetry.run())
                tasks.create_task(self._acts.run())
                tasks.create_task(self._confirm_acts())
                tasks.create_task(self._keep_watching_host())
                tasks.create_task(self._engines.keep_discovering())
                tasks.create_task(self._files.keep_looking())
                if self._spot is not None:
                    tasks.create_task(self._spot.run())
                if options.page is not None:
                    tasks.create_task(self._serve_pages(options.page))
                begun_seconds = asyncio.get_running_loop().time()
                # Between two readings, so that looks at many engines do not make answers of GPUs seem late.
                shortest_seconds = min(options.gpus.nvml.interval_seconds, options.engines.interval_seconds)
                tasks.create_task(self._engines.keep_looking(begun_seconds + shortest_seconds / 2))
                tasks.create_task(self._keep_watching_itself(begun_seconds + shortest_seconds / 2))
                await self._collector.start()
                self._take(await self._collector.read())
                tasks.create_task(self._keep_reading(begun_seconds))
                # The first report must not say that a node with GPUs has none.
                tasks.create_task(reports.run())
        finally:
            await self._collector.stop()
            await self._engines.stop()
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
        self._slice, self._revision = snapshot, revision
        self._engines.adopt(snapshot.engines)
        # Before there is a stream it is the one that was kept on disk.
        self._acts.adopt(snapshot, confirmed=self._client.connected)
        self._changed.set()

    async def _confirm_acts(self) -> None:
        """What the slice on disk asks for may have been taken back: the control plane is asked, until it has answered.

        Where it has another one, its stream brings that.
        """
        while self._acts.awaits_confirmation:
            with contextlib.suppress(TargetRefused, SnapshotRefused, aiohttp.ClientError, OSError, *UNREADABLE):
                newest = msgspec.json.decode(await self._client.get("/api/v1/config/snapshot"))
                if decode_snapshot(newest) == self._slice:
                    self._acts.confirm()
                    return
            await asyncio.sleep(self._options.engines.interval_seconds)

    @property
    def _cordoned(self) -> bool:
        return self._slice is not None and self._slice.node.cordoned

    # GPUs.

    async def _keep_reading(self, begun_seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        due_seconds = begun_seconds
        while True:
            # From the beginning of a reading: one that waits for a hung GPU puts off no other.
            due_seconds = next_due(due_seconds, clock(), self._options.gpus.nvml.interval_seconds)
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
            cuda_version=readings.cuda_version,
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

    # Everything else.

    async def _keep_watching_host(self) -> None:
        while True:
            self._telemetry.add(_HOST, await self._host.look(self._engines.configured))
            await asyncio.sleep(self._options.host.interval_seconds)

    async def _keep_watching_itself(self, due_seconds: float) -> None:
        """With each round of looks, so that one push takes both."""
        clock = asyncio.get_running_loop().time
        while True:
            self._telemetry.add(_OWN, self._own_samples())
            due_seconds = next_due(due_seconds, clock(), self._options.engines.interval_seconds)
            await asyncio.sleep(due_seconds - clock())

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

    def _tell(self, name: str, told: Told) -> None:
        self._reporter.report(told.kind, name, told.severity, told.detail)

    def _on_event(self, event: Event) -> None:
        # On disk before anything else is done about it.
        self._event_push.put(event)
        _log_event(event)

    def _on_spot_event(self, event: Event) -> None:
        self._on_event(event)
        # The report says of engines whether they leave.
        self._changed.set()

    async def _serve_pages(self, page: PageOptions) -> None:
        # What few nodes use is imported where it is used: memory.
        from gpu_agent.page.pages import Pages
        from gpu_agent.page.server import PageServer

        pages = Pages(
            token=page.token,
            live=self._telemetry.live,
            node=lambda: self._leaving() + node_reasons(self._slice, self._hardware.gpus),
            engine=lambda name: self._leaving() + self._engine_reasons(name),
            empty=self._pre_stop.empty,
        )
        await PageServer(page.host, page.port, pages.answer).run()

    def _engine_reasons(self, name: str) -> list[str]:
        leaving = self._pre_stop.is_leaving(name)
        return engine_reasons(self._slice, name, self._engines.seen.get(name), leaving=leaving)

    async def _drained(self, name: str, limit_seconds: int) -> str:
        engine = self._engines.configured[name]
        return await drained(lambda: self._engines.look(name, engine), limit_seconds)

    def _leaving(self) -> list[str]:
        return [SPOT_NOTICE] if self._spot is not None and self._spot.leaving else []

    def _marked(self, report: EngineReport) -> EngineReport:
        """Says so of an engine whose machine will be taken away, or whose process is about to be ended."""
        return msgspec.structs.replace(report, leaving=True) if self._leaving() else self._pre_stop.mark(report)

    def _node_report(self) -> NodeReport:
        return msgspec.structs.replace(
            self._hardware,
            engines=[self._marked(report) for report in self._engines.reports()],
            cordon_applied=self._cordoned,
            found_engines=self._engines.found(),
            host_problems=self._host.problems_said(),
            acts=self._acts.reports(),
            model_files=self._files.reports(),
            allowed_acts=self._options.policy.allowed_acts,
            revision=self._revision,
        )


def _log_event(event: Event) -> None:
    line = f"event {event.kind} on {event.subject}: {event.detail}"
    # Texts of the driver's may hold anything; it stays one line.
    log.log(_LOG_LEVELS[event.severity], "%s", " ".join(line.split()))
