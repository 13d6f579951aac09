"""Row 3: engines end for want of GPU memory while there is some, or beside others that hold it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors import promql
from controlplane.diagnosis.detectors.confidence import combined, lowered
from controlplane.diagnosis.detectors.engine_acts import drained_restart
from controlplane.diagnosis.detectors.restarting import ROLL, desired
from wire.canonical import Document
from wire.engine_arguments import value_of

_HELD = "headworks_gpu_process_memory_bytes"
# vLLM leaves 8 % of a GPU for all that is not its own (gpu_memory_utilization 0.92). A stranger that takes more than
# half of that leaves less than the engine's own peaks need.
_STRANGER_SHARE = 0.04
_UTILISATION, _USUAL_UTILISATION = "gpu-memory-utilization", 0.92
# Of what it may hold at least: with less an engine has no room for its weights, and that is another plan.
_UTILISATION_MIN = 0.5
_EAGER = "enforce-eager"
_GIB = 2**30


class _Exit(NamedTuple):
    """Bytes of the allocation that failed; None: the log does not tell."""

    asked: float | None
    free: float | None
    unallocated: float | None

    @property
    def is_fragmented(self) -> bool:
        """As much was there as was asked for, but not in one piece."""
        there = (self.free or 0.0) + (self.unallocated or 0.0)
        return self.asked is not None and there >= self.asked


class _Stranger(NamedTuple):
    """Processes of no engine on a GPU that an engine runs on. `total_bytes`: of the GPU."""

    node: str
    gpu: str
    held_bytes: float
    total_bytes: float

    @property
    def share(self) -> float:
        return self.held_bytes / self.total_bytes


class VramFragmentation(Detector):
    """An engine's last run ended in CUDA's out of memory, or processes of no engine hold memory of its GPU.

    A KV cache that is full (row 1) never ends an engine: it was taken whole at the start. Ends for other reasons, and
    those of the host's own memory, are told apart by the log. Where less was free than was asked for, nothing was
    fragmented: then the engine, or a stranger beside it, simply takes too much.
    """

    number = 3
    name = "vram_fragmentation"
    title = _("VRAM fragmentation")
    explanation = _(
        "Allocations of many sizes cut the GPU's memory into pieces: with 15 GB free one of 4 GB can fail, since no "
        "piece is as large. Engines take their KV cache as one block when they start; what fails later are "
        "activations, CUDA graphs and others' processes. Let the allocator's segments grow, leave graphs out, or move "
        "the neighbour."
    )
    weighs_window = False
    queries: ClassVar = {
        "ended": "max by (pool, engine) (headworks_engine_out_of_memory_exit) > 0",
        "bytes": "max by (engine, part) (headworks_engine_out_of_memory_bytes)",
        "strangers": f'sum by (node, gpu) ({_HELD}{{engine=""}})',
        "engines": f'max by (node, gpu, engine) ({_HELD}{{engine!=""}})',
        "restarts": promql.counted("headworks_engine_restarts_total", "engine"),
    }
    # Of a minute: tools and tests that look at a GPU come and go.
    lasts_rounds = 4

    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        ended = {engine for _pool, engine in readings.by("ended", "pool", "engine")}
        strangers = _strangers(readings, fleet)
        for engine in sorted((ended | strangers.keys()) & fleet.engines.keys()):
            gone = _exit(engine, readings) if engine in ended else None
            yield self._finding(fleet.engines[engine], gone, strangers.get(engine), readings, fleet)

    def _finding(
        self, row: Document, gone: _Exit | None, stranger: _Stranger | None, readings: Readings, fleet: Fleet
    ) -> Finding:
        signals, evidence = list[int](), list[Evidence]()
        if gone is not None:
            signals.append(850 if gone.is_fragmented else lowered(850, 700))
            evidence.append(Evidence("ended_out_of_memory", 1.0, "count", None, self.queries["ended"]))
            told = (("asked", gone.asked), ("free", gone.free), ("unallocated", gone.unallocated))
            evidence += [Evidence(name, size, "bytes") for name, size in told if size is not None]
            restarts = readings.by("restarts", "engine").get((row["name"],))
            if restarts is not None:
                evidence.append(Evidence("restarts", restarts, "count", None, self.queries["restarts"]))
        if stranger is not None:
            signals.append(500)
            evidence.append(
                Evidence("held_by_no_engine", stranger.share, "ratio", _STRANGER_SHARE, self.queries["strangers"])
            )
        return Finding(
            subject=f"engine/{row['name']}",
            summary=_summary(row["name"], gone, stranger),
            confidence_permille=combined(*signals),
            evidence=tuple(evidence),
            pools=(row["pool"],) if row["pool"] in fleet.pools else (),
            tenants=tuple(sorted(fleet.tenants_of.get(row["pool"], ()))),
            levers=tuple(_levers(row, gone, stranger, fleet)),
        )


def _exit(engine: str, readings: Readings) -> _Exit:
    told = readings.by("bytes", "engine", "part")
    return _Exit(*(told.get((engine, part)) for part in ("asked", "free", "unallocated")))


def _strangers(readings: Readings, fleet: Fleet) -> dict[str, _Stranger]:
    """By engine, of its GPUs the one of which most is held by others."""
    totals = {(gpu["node"], str(gpu["index"])): gpu["memory_bytes"] for gpu in fleet.gpus}
    held, found = readings.by("strangers", "node", "gpu"), dict[str, _Stranger]()
    for node, gpu, engine in readings.by("engines", "node", "gpu", "engine"):
        total = totals.get((node, gpu))
        if not total or (node, gpu) not in held:
            continue
        stranger = _Stranger(node, gpu, held[node, gpu], total)
        if stranger.share >= _STRANGER_SHARE and (engine not in found or stranger.share > found[engine].share):
            found[engine] = stranger
    return found


def _summary(engine: str, gone: _Exit | None, stranger: _Stranger | None) -> Promise:
    if gone is None and stranger is not None:
        return format_lazy(
            _("{engine}: processes of no engine hold {held:.1f} GiB of GPU {gpu} of {node}"),
            engine=engine, held=stranger.held_bytes / _GIB, gpu=stranger.gpu, node=stranger.node,
        )  # fmt: skip
    if gone is not None and gone.is_fragmented and gone.free is not None:
        return format_lazy(
            _("{engine} ended: {asked:.1f} GiB of GPU memory were not to be had, with {free:.1f} GiB free"),
            engine=engine, asked=(gone.asked or 0.0) / _GIB, free=gone.free / _GIB,
        )  # fmt: skip
    return format_lazy(_("{engine} ended for want of GPU memory"), engine=engine)


def _levers(row: Document, gone: _Exit | None, stranger: _Stranger | None, fleet: Fleet) -> Iterator[Lever]:
    facts = fleet.pools.get(row["pool"])
    is_vllm = row["kind"] == "vllm" and facts is not None
    wanted = {} if facts is None else facts.row["engine_arguments"]
    now = {**row["arguments"], **{name: str(value) for name, value in wanted.items()}}
    if gone is not None and is_vllm and facts is not None and value_of(_EAGER, now) != "true":
        yield Lever(
            key="eager",
            title=format_lazy(_("Start {engine} without CUDA graphs"), engine=row["name"]),
            why=_("Captured graphs hold some GB; without them each step of a small batch takes a little longer."),
            edits=desired(facts, {_EAGER: True}),
            commands=drained_restart(fleet, row["name"], {_EAGER: True}),
            advice=ROLL,
        )
    if stranger is not None:
        yield Lever(
            key="move_neighbour",
            title=format_lazy(_("Move what shares GPU {gpu} of {node}"), gpu=stranger.gpu, node=stranger.node),
            why=format_lazy(
                _("Processes of no engine hold {held:.1f} GiB there: {share:.0%} of the GPU."),
                held=stranger.held_bytes / _GIB, share=stranger.share,
            ),
            advice=_("nvidia-smi on the node names them. An engine that nobody configured shows there, too."),
        )  # fmt: skip
    if stranger is not None and is_vllm and facts is not None:
        share = _share_without(stranger, now)
        edits = () if share is None else desired(facts, {_UTILISATION: share})
        if edits:
            yield Lever(
                key="gpu_memory_utilization",
                title=format_lazy(
                    _("Leave the neighbour room: {name} {share}"), name=_UTILISATION, share=share
                ),
                why=_("What it holds, taken from what the engine may; the KV cache gets smaller by it."),
                edits=edits,
                advice=ROLL,
            )  # fmt: skip
    if gone is not None:
        yield Lever(
            key="allocator",
            title=_("Let the allocator's segments grow"),
            why=_("Segments that can grow leave fewer holes that nothing fits into."),
            advice=_("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the engine's environment."),
        )


def _share_without(stranger: _Stranger, arguments: dict[str, str]) -> str | None:
    """In hundredths, rounded down; None where too little is left."""
    try:
        now = float(value_of(_UTILISATION, arguments) or _USUAL_UTILISATION)
    except ValueError:
        return None
    then = int((now - stranger.share) * 100) / 100
    return f"{then:.2f}" if _UTILISATION_MIN <= then < now else None
