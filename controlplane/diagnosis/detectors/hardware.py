"""Row 20: GPUs that fail, slow themselves down, or are cut into pieces that cannot carry the work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Command, Detector, Edit, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors.confidence import combined
from controlplane.diagnosis.detectors.engine_acts import has_another, may, may_on_node
from controlplane.diagnosis.detectors.numbers import of
from controlplane.diagnosis.detectors.promises import tpot_seconds
from controlplane.diagnosis.detectors.promql import quantile

# As agents word it: XID 79 (GPU has fallen off the bus) on GPU 3 (…): class hardware, action cordon_reboot, then …
_XID = re.compile(r"XID (\d+)\b.*?\baction (\w+)", re.DOTALL)
_GPU = ("node", "gpu", "UUID")
# A reset that the driver or the XID asks for, and what is more than a reset.
_REBOOTS = frozenset({"cordon_reboot", "restart_vm"})


def _worst(series: str, *by: str) -> str:
    return f"max by ({', '.join((*_GPU, *by))}) ({series})"


def _while(reasons: str) -> str:
    """The share of the window in which one of these slowed a GPU down."""
    return _worst(f'avg_over_time(headworks_gpu_clock_event_active{{reason=~"{reasons}"}}[$window])')


@dataclass(frozen=True)
class _Fault:
    """One thing that is wrong with a GPU, or with the node where `uuid` is empty. `fatal`: it cannot be used on."""

    name: str
    uuid: str
    confidence_permille: int
    evidence: Evidence
    fatal: bool = False
    action: str = ""


class Hardware(Detector):
    """A node that takes work has a GPU with a fatal XID, uncorrectable memory, or one that is lost; or one that is hot,
    braked, or behind fewer PCIe lanes than it could have; or MIG slices that miss what their pool promises per token.

    A node that is cordoned is contained, and what happens to it then is remediation's to show. XIDs of applications
    count when they repeat. Software power capping is usual under load and no fault. Which links connect GPUs is row
    7's.
    """

    number = 20
    name = "hardware"
    title = _("Hardware")
    explanation = _(
        "The pod is up and the card is broken: XID errors can be silent. With uncorrectable ECC errors the node is "
        "cordoned, drained and its GPU reset. Under load a hot card lowers its clocks: where throughput fell without a "
        "reason look at temperature and power limit. MIG divides memory bandwidth as well, by which decode is bound."
    )
    weighs_window = False
    queries: ClassVar = {
        "uncorrected": _worst("increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[$window])"),
        "remap_failure": _worst("DCGM_FI_DEV_ROW_REMAP_FAILURE"),
        "recovery": _worst("headworks_gpu_recovery_action"),
        "hot": _while("hw_thermal_slowdown|sw_thermal_slowdown"),
        "braked": _while("hw_power_brake_slowdown"),
        "celsius": _worst("avg_over_time(DCGM_FI_DEV_GPU_TEMP[$window])"),
        "watts": _worst("avg_over_time(DCGM_FI_DEV_POWER_USAGE[$window])"),
        "lanes": (
            f"max by ({', '.join(_GPU)}) (max_over_time(DCGM_FI_DEV_PCIE_LINK_WIDTH[$window]))"
            f" / max by ({', '.join(_GPU)}) (DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH)"
        ),
        "mig": _worst("headworks_gpu_mig_instances"),
        "tpot": quantile(0.95, "headworks_gateway_tpot_seconds", "pool"),
    }
    # One sign of a fault is a fault.
    lasts_rounds = 1
    # A spike of a few seconds is the card's own regulation. gpud: 0.6 events a minute over ten minutes.
    SLOWED_SHARE = 0.2
    ONCE = 0.5
    APPLICATION_XIDS = 2
    # Of what it draws now a GPU should draw so much, where nothing else cools it.
    COOLER_SHARE = 0.85

    def judge(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        for node, row in sorted(fleet.nodes.items()):
            if row["cordoned"]:
                continue
            faults = [*self._told(fleet, node), *self._measured(readings, node), *self._sliced(readings, fleet, node)]
            if not faults:
                continue
            faults.sort(key=lambda fault: (not fault.fatal, -fault.confidence_permille, fault.name, fault.uuid))
            engines = sorted(name for name, engine in fleet.engines.items() if engine["node"] == node)
            pools = tuple(sorted({str(fleet.engines[name]["pool"]) for name in engines}))
            said = format_lazy(
                _("{node}: {faults}"), node=node, faults=", ".join(dict.fromkeys(fault.name for fault in faults))
            )
            yield Finding(
                f"node/{node}", said, combined(*(fault.confidence_permille for fault in faults)),
                tuple(fault.evidence for fault in faults), pools,
                tuple(sorted({tenant for pool in pools for tenant in fleet.tenants_of.get(pool, {})})),
                tuple(self._levers(readings, fleet, node, engines, faults)),
            )  # fmt: skip

    # What agents told

    def _told(self, fleet: Fleet, node: str) -> Iterator[_Fault]:
        mine = [each for each in fleet.events if each["node"] == node and each.get("incident_state") != "resolved"]
        well: dict[str, datetime] = {}
        for each in mine:
            if each["kind"] in ("gpu_recovered", "nvml_recovered"):
                well[each["subject"]] = max(_at(each), well.get(each["subject"], _at(each)))
        counts: dict[tuple[str, str, str, bool], int] = {}
        for each in mine:
            fault = _kind_of(each)
            since = well.get(each["subject"])
            if fault is not None and (since is None or _at(each) > since):
                key = (*fault, each["subject"], each["severity"] == "critical")
                counts[key] = counts.get(key, 0) + 1
        for (name, action, subject, fatal), count in sorted(counts.items()):
            if not fatal and count < self.APPLICATION_XIDS:
                continue
            limit = 1.0 if fatal else float(self.APPLICATION_XIDS)
            evidence = Evidence(f"{name} {subject}", float(count), "count", limit)
            yield _Fault(name, subject, 900 if fatal else 500, evidence, fatal, action)
        for gpu in fleet.gpus:
            if gpu["node"] == node and gpu["state"] != "ok":
                name = f"GPU {gpu['index']} {gpu['state']}"
                evidence = Evidence(name, 1.0, "count", 1.0)
                yield _Fault(name, gpu["uuid"], 900, evidence, fatal=True, action="cordon_reboot")

    # What is measured

    def _measured(self, readings: Readings, node: str) -> Iterator[_Fault]:
        rows = (
            ("uncorrected", "ECC", self.ONCE, 900, "count", "cordon_drain_reset", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
            ("remap_failure", "row remapping failed", 1.0, 900, "count", "reset_gpu", "DCGM_FI_DEV_ROW_REMAP_FAILURE"),
            ("recovery", "the driver asks for a recovery", 1.0, 850, "count", "", "headworks_gpu_recovery_action"),
            ("hot", "hot", self.SLOWED_SHARE, 800, "ratio", None, "DCGM_FI_DEV_GPU_TEMP"),
            ("braked", "power brake", self.SLOWED_SHARE, 800, "ratio", None, "DCGM_FI_DEV_POWER_USAGE"),
        )
        for query, name, limit, confidence, unit, action, metric in rows:
            for (where, _gpu, uuid), value in sorted(readings.by(query, *_GPU).items()):
                if where == node and value >= limit:
                    evidence = Evidence(f"{query} {uuid}", value, unit, limit, of(metric, node=node, UUID=uuid))
                    asked = _RECOVERIES.get(round(value), "") if query == "recovery" else action
                    yield _Fault(name, uuid, confidence, evidence, fatal=action is not None, action=asked or "")
        for (where, _gpu, uuid), value in sorted(readings.by("lanes", *_GPU).items()):
            if where == node and value < 1:
                expr = of("DCGM_FI_DEV_PCIE_LINK_WIDTH", node=node, UUID=uuid)
                yield _Fault("PCIe lanes lost", uuid, 600, Evidence(f"lanes {uuid}", value, "ratio", 1.0, expr))

    def _sliced(self, readings: Readings, fleet: Fleet, node: str) -> Iterator[_Fault]:
        """MIG under a pool that writes token by token and is slower than it promises."""
        tpot = readings.by_pool("tpot")
        for (where, _gpu, uuid), instances in sorted(readings.by("mig", *_GPU).items()):
            if where != node or instances < 1:
                continue
            slow = [
                pool for pool, facts in fleet.pools.items()
                if facts.row["work"] in ("short", "long") and tpot.get(pool, 0.0) > tpot_seconds(facts.row)
                and any(fleet.engines.get(name, {}).get("node") == node for name in facts.engines)
            ]  # fmt: skip
            if slow:
                evidence = Evidence(f"mig {uuid}", instances, "count", 1.0,
                                    of("headworks_gpu_mig_instances", node=node, UUID=uuid))  # fmt: skip
                yield _Fault("MIG", uuid, 400, evidence)

    # What helps

    def _levers(
        self, readings: Readings, fleet: Fleet, node: str, engines: list[str], faults: list[_Fault]
    ) -> Iterator[Lever]:
        fatal = [fault for fault in faults if fault.fatal]
        cordon = Edit("nodes", node, {"cordoned": True})
        if fatal:
            why = ", ".join(dict.fromkeys(fault.name for fault in fatal))
            yield Lever("cordon", _("Cordon the node"), why, (cordon,),
                        advice=_("Its engines take no new work; what runs ends by itself."))  # fmt: skip
            yield _mend(fleet, node, cordon, _emptied(fleet, engines), fatal, why)
        elif any(fault.action == "restart_app" for fault in faults):
            advice = _(
                "Drain and restart them; where the XID comes again run the site's diagnostics (dcgmi diag -r 3)."
            )
            yield Lever("restart_engines", _("Restart the engines that use the GPU"),
                        _("The faults are an application's"), advice=advice)  # fmt: skip
        yield from self._cooler(readings, node, faults)
        names = {fault.name for fault in faults}
        yield from (lever for name, lever in _BY_NAME.items() if name in names)

    def _cooler(self, readings: Readings, node: str, faults: list[_Fault]) -> Iterator[Lever]:
        watts, celsius = readings.by("watts", *_GPU), readings.by("celsius", *_GPU)
        hot = [place for place in watts if place[0] == node and any(
            fault.uuid == place[2] and fault.name == "hot" for fault in faults)]  # fmt: skip
        if hot:
            worst = max(hot, key=lambda place: celsius.get(place, 0.0))
            lower = round(watts[worst] * self.COOLER_SHARE)
            why = format_lazy(
                _("GPU {gpu} is at {celsius} °C and draws {watts} W"), gpu=worst[1],
                celsius=f"{celsius.get(worst, 0.0):.0f}", watts=f"{watts[worst]:.0f}",
            )  # fmt: skip
            advice = format_lazy(
                _("Look at fans, dust, airflow and the room. Until then nvidia-smi -i {gpu} -pl {lower} draws {share} "
                  "% of that: decode, bound by bandwidth, loses less than the clocks do."),
                gpu=worst[1], lower=lower, share=round(self.COOLER_SHARE * 100),
            )  # fmt: skip
            yield Lever("cool", _("Cool the GPU"), why, advice=advice)


def _emptied(fleet: Fleet, engines: Iterable[str]) -> tuple[Command, ...]:
    """Let the node's engines end what they do, and end them: a GPU that is held cannot be reset."""
    drained = [name for name in engines if may(fleet, name, "drain") and has_another(fleet, name)]
    return tuple(
        Command(f"engine/{name}", action)
        for name in drained
        for action in ("drain", "stop")
        if action == "drain" or may(fleet, name, "stop")
    )


def _mend(
    fleet: Fleet, node: str, cordon: Edit, commands: tuple[Command, ...], fatal: Iterable[_Fault], why: str
) -> Lever:
    """Empty the node, then what the gravest fault asks for: acts on a node do not wait for those on its engines."""
    actions, uuids = {fault.action for fault in fatal}, sorted({fault.uuid for fault in fatal})
    if actions & _REBOOTS:
        how = _("by the act reboot") if may_on_node(fleet, node, "reboot") else _("by hand")
        advice = format_lazy(
            _("Once nothing runs, reboot the machine, {how}. Uncordon it once it was tested; where the fault comes "
              "again call the vendor."), how=how,
        )  # fmt: skip
        return Lever("drain_and_reboot", _("Drain the node, then reboot it"), why, (cordon,), commands, advice)
    indexes = {gpu["uuid"]: str(gpu["index"]) for gpu in fleet.gpus}
    which = ",".join(indexes[uuid] for uuid in uuids if uuid in indexes) or "INDEX"
    how = format_lazy(_("on the node: headworks-agent release-gpu -- nvidia-smi --gpu-reset -i {which}"), which=which)
    if may_on_node(fleet, node, "reset_gpu") and any(uuid in indexes for uuid in uuids):
        how = format_lazy(_("by the act reset_gpu with gpu {uuids}"), uuids=", ".join(u for u in uuids if u in indexes))
    advice = format_lazy(
        _("Once nothing runs, reset the GPU, {how}. Uncordon the node once it was tested; where the fault comes again "
          "call the vendor."), how=how,
    )  # fmt: skip
    return Lever("drain_and_reset", _("Drain the node, then reset its GPU"), why, (cordon,), commands, advice)


_BY_NAME = {
    "power brake": Lever(
        "power", _("See to the power supply"), _("Something outside the card brakes it"),
        advice=_("Look at power supplies, cables and the rack's limit: the brake comes from there, not from the card."),
    ),
    "PCIe lanes lost": Lever(
        "reseat", _("See to the slot"), _("The link has fewer lanes than card and slot can have"),
        advice=_("Reseat the card, and look at riser and BIOS; loading and tensor parallelism go slower until then."),
    ),
    "MIG": Lever(
        "no_mig", _("Give the pool whole GPUs"), _("A slice has its part of the memory bandwidth"),
        advice=_("Move the pool's engines to whole GPUs, or let small models alone use slices: release_gpus, "
                 "nvidia-smi -mig 0, then start the engine anew."),
    ),
}  # fmt: skip
# NVML's verdicts: GPU reset, node reboot, drain of peers, drain and reset, IMEX, bus reset, system reboot.
_RECOVERIES = {1: "reset_gpu", 2: "cordon_reboot", 3: "cordon_drain_reset", 4: "cordon_drain_reset",
               6: "reset_gpu", 7: "cordon_reboot"}  # fmt: skip
_ACTION_OF = {"gpu_lost": "cordon_reboot", "gpu_unresponsive": "cordon_reboot", "sxid": "cordon_reboot",
              "nvml_failed": "cordon_reboot"}  # fmt: skip


def _kind_of(event: Mapping[str, Any]) -> tuple[str, str] | None:
    """(what is shown, what it asks for) of an event of hardware that is worth a look; None: of another."""
    if event["severity"] == "info":
        return None
    if event["kind"] == "xid":
        found = _XID.search(str(event["detail"]))
        return ("XID", "") if found is None else (f"XID {found[1]}", found[2])
    if event["kind"] in _ACTION_OF and event["severity"] == "critical":
        return event["kind"].replace("_", " "), _ACTION_OF[event["kind"]]
    return None


def _at(event: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(event["at"])
