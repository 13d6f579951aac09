"""All that a node's agent knows of its GPUs: NVML through its child, XIDs of the kernel log, counted together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpu_agent import settings
from gpu_agent.events import Reporter, Severity
from gpu_agent.nvml.kmsg import PciAddress, Sighting, parse_pci, show_pci
from gpu_agent.nvml.kmsg_reader import KmsgReader
from gpu_agent.nvml.ledger import Entry, XidLedger, XidSource
from gpu_agent.nvml.ledger_file import keep_ledger, load_ledger
from gpu_agent.nvml.reader import NvmlOptions, NvmlReader
from gpu_agent.nvml.readings import GpuIdentity, GpuReading, GpuReadings, XidTally
from gpu_agent.nvml.release import Releases
from gpu_agent.nvml.xids import COUNTED_CLASSES, FELL_OFF_THE_BUS, UNKNOWN, XidRule, load_rules
from wire.messages import Event

if TYPE_CHECKING:
    from gpu_agent.nvml.dcgm_exporter import DcgmExporter

_POSITION_FILE = "kmsg-position.json"
_LEDGER_FILE = "xids-told.json"


@dataclass(frozen=True)
class CollectorOptions:
    """`rules` come from `xids.load_rules`; the rest is a field a setting. `dcgm_exporter_url`: empty for none."""

    node: str
    state_dir: Path
    nvml: NvmlOptions
    kmsg_path: Path
    kmsg_scan_seconds: float
    rules: dict[int, XidRule]
    dcgm_exporter_url: str

    @classmethod
    def from_settings(cls, node: str, state_dir: Path) -> CollectorOptions:
        """Raises: BadSetting, or BadXidRules where the site's rules cannot be used."""
        return cls(
            node=node,
            state_dir=state_dir,
            nvml=NvmlOptions(
                source=settings.GPU_SOURCE.read(),
                library=settings.NVML_LIBRARY.read(),
                interval_seconds=settings.GPU_INTERVAL_SECONDS.read(),
                slow_interval_seconds=settings.GPU_SLOW_INTERVAL_SECONDS.read(),
                processes_interval_seconds=settings.GPU_PROCESSES_INTERVAL_SECONDS.read(),
                answer_seconds=settings.GPU_ANSWER_SECONDS.read(),
                open_seconds=settings.NVML_OPEN_SECONDS.read(),
                retry_seconds=settings.NVML_RETRY_SECONDS.read(),
            ),
            kmsg_path=settings.KMSG_PATH.read(),
            kmsg_scan_seconds=settings.KMSG_SCAN_SECONDS.read(),
            rules=load_rules(settings.XID_RULES_FILE.read()),
            dcgm_exporter_url=settings.DCGM_EXPORTER_URL.read(),
        )


class GpuCollector:
    """Starts both sources, reads NVML on demand, and hands events to `on_event` as they happen."""

    def __init__(self, options: CollectorOptions, on_event: Callable[[Event], None]) -> None:
        self._options, self._rules = options, options.rules
        self._dcgm: DcgmExporter | None = None
        self._reporter = Reporter(options.node, on_event)
        self._ledger_file = options.state_dir / _LEDGER_FILE
        self._ledger = XidLedger(load_ledger(self._ledger_file))
        # What NVML last said, so that a line of the kernel log can be put to its GPU.
        self._identities: dict[PciAddress, GpuIdentity] = {}
        # Of NVSwitches.
        self._sxids: dict[PciAddress, XidTally] = {}
        self._by_class: defaultdict[PciAddress, Counter[str]] = defaultdict(Counter)
        self.nvml = NvmlReader(options.nvml, self._reporter, self._nvml_xid, Releases(options.state_dir))
        self.kmsg = KmsgReader(
            path=options.kmsg_path,
            position_file=options.state_dir / _POSITION_FILE,
            scan_seconds=options.kmsg_scan_seconds,
            on_sighting=self._seen_in_kmsg,
        )

    async def start(self) -> None:
        """Open NVML and the kernel log; neither need be there. The first reading knows every GPU that answers."""
        if self._options.dcgm_exporter_url:
            # Late: few nodes have one.
            from gpu_agent.nvml.dcgm_exporter import DcgmExporter

            self._dcgm = DcgmExporter(self._options.dcgm_exporter_url, self._options.nvml.interval_seconds)
            self._dcgm.start()
        await self.nvml.start()
        await self.read()
        self.kmsg.start()

    async def stop(self) -> None:
        if self._dcgm is not None:
            await self._dcgm.stop()
        await self.kmsg.stop()
        await self.nvml.stop()

    async def release(self, for_seconds: float) -> None:
        """Close NVML for so long, or until `take_up`, so that GPUs can be reset or sliced anew; an hour at most.

        Returns once it is closed. Raises: release.NotReleased where a process that hangs in the driver keeps it open;
        GPUs are read on then.
        """
        await self.nvml.release(for_seconds)

    async def take_up(self) -> None:
        """End what `release` began; NVML opens in its own time."""
        await self.nvml.take_up()

    @property
    def xid_sources(self) -> list[str]:
        """What tells of XIDs now: nvml, kmsg, both or neither; the readings' `problems` say why one does not."""
        return ["nvml"] * self.nvml.watches_xids + ["kmsg"] * self.kmsg.follows

    async def read(self) -> GpuReadings:
        """The GPUs now, with their XIDs so far. `problems` names the sources that do not work."""
        readings = await self.nvml.read()
        for gpu in readings.gpus:
            if pci := parse_pci(gpu.identity.pci_bus_id):
                self._identities[pci] = gpu.identity
        problems = readings.problems + ([self.kmsg.problem] if self.kmsg.problem else [])
        if self._dcgm is not None:
            readings = self._dcgm.complete(readings)
            problems += [self._dcgm.problem] if self._dcgm.problem else []
        elsewhere = (
            self._ledger.last.keys()
            - self._sxids.keys()
            - {parse_pci(gpu.identity.pci_bus_id) for gpu in readings.gpus}
        )
        return msgspec.structs.replace(
            readings,
            gpus=[self._with_xids(gpu) for gpu in readings.gpus],
            problems=problems,
            xids_elsewhere={show_pci(pci): self._tally(pci) for pci in sorted(elsewhere)},
            sxids={show_pci(pci): tally for pci, tally in self._sxids.items()},
        )

    def _with_xids(self, gpu: GpuReading) -> GpuReading:
        pci = parse_pci(gpu.identity.pci_bus_id)
        if pci is None:
            return gpu
        counted = {kind: self._by_class[pci][kind] for kind in COUNTED_CLASSES}
        return msgspec.structs.replace(gpu, xids=self._tally(pci), xids_by_class=counted)

    def _tally(self, pci: PciAddress) -> XidTally:
        return XidTally(self._ledger.last.get(pci, 0), self._ledger.total[pci])

    def _nvml_xid(self, identity: GpuIdentity, xid: int, at_ms: int, instance: int | None) -> None:
        if pci := parse_pci(identity.pci_bus_id):
            self._identities[pci] = identity
            self._add("nvml", pci, xid, at_ms, event_id=None, instance=instance)

    def _seen_in_kmsg(self, seen: Sighting, at_ms: int, event_id: str) -> None:
        if seen.number is None:
            self._add("text", seen.pci, FELL_OFF_THE_BUS, at_ms, event_id)
        elif seen.kind == "sxid":
            self._add_sxid(seen, seen.number, at_ms, event_id)
        else:
            self._add("kmsg", seen.pci, seen.number, at_ms, event_id, seen.instance)

    def _add_sxid(self, seen: Sighting, sxid: int, at_ms: int, event_id: str) -> None:
        severity: Severity = "critical"
        detail = f"SXid {sxid} on the NVSwitch at {show_pci(seen.pci)}: {seen.text}"
        self._sxids[seen.pci] = XidTally(sxid, self._sxids.get(seen.pci, XidTally()).total + 1)
        # Links may throw hundreds that are not fatal; one that is is never kept back.
        if not seen.fatal:
            entry = self._ledger.add("kmsg", seen.pci, sxid, at_ms)
            if entry is None or not entry.say:
                return
            severity, detail = "warning", detail + _unsaid(entry)
        self._reporter.report("sxid", show_pci(seen.pci), severity, detail, at_ms=at_ms, event_id=event_id)

    def _add(
        self,
        source: XidSource,
        pci: PciAddress,
        xid: int,
        at_ms: int,
        event_id: str | None,
        instance: int | None = None,
    ) -> None:
        entry = self._ledger.add(source, pci, xid, at_ms)
        if entry is None:
            return
        rule = self._rules.get(xid, UNKNOWN)
        if rule.severity != "info":
            self._by_class[pci][rule.kind] += 1
        identity = self._identities.get(pci)
        if identity and rule.action == "read_recovery_action":
            self.nvml.expect_change(identity.index)
        if not entry.say:
            return
        where = (
            f"GPU {identity.index} ({identity.name}, {show_pci(pci)})" if identity else f"the GPU at {show_pci(pci)}"
        )
        where += "" if instance is None else f", MIG instance {instance}"
        detail = f"XID {xid} ({rule.name}) on {where}: class {rule.kind}, action {rule.action}"
        detail += f", then {rule.then}" if rule.then != "none" else ""
        detail += f"; XID {rule.ends} is over" if rule.ends else ""
        detail += _unsaid(entry)
        subject = identity.uuid if identity else show_pci(pci)
        self._reporter.report("xid", subject, rule.severity, detail, at_ms=at_ms, event_id=event_id)
        # After the event itself is kept: told twice is better than never.
        keep_ledger(self._ledger_file, self._ledger.kept())


def _unsaid(entry: Entry) -> str:
    return f"; {entry.unsaid} more of it since the last event" if entry.unsaid else ""
