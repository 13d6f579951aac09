"""Row 18: engines that take minutes to start, where load comes in seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Command, Detector, Edit, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors.confidence import combined
from controlplane.diagnosis.detectors.engine_acts import may_on_node
from controlplane.diagnosis.detectors.numbers import named, of, share
from controlplane.diagnosis.detectors.promql import counted, per_second, typical
from controlplane.diagnosis.detectors.refusals import FOR_CAPACITY

_TOTAL = "total"
_RATE = "pool:headworks_gateway_generation_tokens:rate1m"


class ColdStart(Detector):
    """An engine that started within the hour took longer than its model allows, or a pool is short while one starts.

    Without a budget two minutes are too long. That a pool is short of capacity is told by rows 1 to 10 as well; it
    counts here only while an engine of it is on its way. An engine that died and comes back was restarted: what ends
    engines is row 19's and 20's matter, how long they then lack is this one's.
    """

    number = 18
    name = "cold_start"
    title = _("Cold start")
    explanation = _(
        "Reading a large model from disk into VRAM and capturing CUDA graphs takes minutes. Scaling that reacts to a "
        "wave of seconds comes too late. Keep weights out of the image and on fast local storage, keep one engine warm "
        "to spare, scale by queue and waiting tokens and not by GPU use, up fast and down slow."
    )
    weighs_window = False
    queries: ClassVar = {
        "network_bytes": 'max by (engine) (headworks_engine_model_bytes{place="network"})',
        "turned_away": counted(FOR_CAPACITY, "pool"),
        "requests": counted("headworks_gateway_requests_total", "pool"),
        "queue": typical("headworks_gateway_queue_length", "pool"),
        "now": per_second("headworks_gateway_generation_tokens_total", "pool"),
        # As recorded each minute: a server that does not record it has no such series.
        "peak": f"max by (pool) (max_over_time({_RATE}[1h]))",
    }
    # Waves come within seconds; what takes minutes is too late for them. Source: seed 1, section 18.
    TOTAL_SECONDS = 120.0
    RECENT = timedelta(hours=1)
    TURNED_AWAY_SHARE = 0.01
    REQUESTS_LEAST = 30.0
    # A budget holds what the best engine of the model has shown to be possible, with a quarter to spare.
    BUDGET_ROOM = 1.25

    def judge(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        for pool, facts in sorted(fleet.pools.items()):
            rows = [fleet.engines[name] for name in facts.engines if name in fleet.engines]
            recent = [row for row in rows if _recent(row, fleet.at, self.RECENT)]
            late = {row["name"]: slow for row in recent if (slow := self._slow(row))}
            starting = [row["name"] for row in rows if _starts(row, fleet)]
            shortage = self._shortage(readings, pool) if starting else []
            if not late and not shortage:
                continue
            budgeted = any(row["name"] in late and row["cold_start"]["over"] for row in rows)
            signals = [800 if budgeted else 500] * bool(late) + [600] * bool(shortage)
            yield Finding(
                f"pool/{pool}", _said(pool, late, starting), combined(*signals),
                (*self._evidence(fleet, late), *shortage), (pool,), tuple(fleet.tenants_of.get(pool, {})),
                tuple(self._levers(readings, fleet, pool, late, rows)),
            )  # fmt: skip

    def _slow(self, engine: Mapping[str, Any]) -> dict[str, float]:
        """The phases of the last start that took too long, in seconds, the worst first; `total` last."""
        phases = {each["phase"]: each for each in engine["cold_start"]["phases"]}
        over = {name: phases[name]["took_ms"] / 1000 for name in engine["cold_start"]["over"]}
        total = phases.get(_TOTAL)
        if not over and total is not None and total["budget_ms"] is None and total["took_ms"] is not None:
            if total["took_ms"] / 1000 < self.TOTAL_SECONDS:
                return {}
            parts = {name: each["took_ms"] / 1000 for name, each in phases.items()
                     if name != _TOTAL and each["took_ms"] is not None}  # fmt: skip
            worst = max(parts, key=lambda name: parts[name], default=None)
            over = {**({} if worst is None else {worst: parts[worst]}), _TOTAL: total["took_ms"] / 1000}
        return dict(sorted(over.items(), key=lambda each: (each[0] == _TOTAL, -each[1])))

    def _shortage(self, readings: Readings, pool: str) -> list[Evidence]:
        signs = []
        asked = readings.by_pool("requests").get(pool, 0.0)
        away = share(readings.by_pool("turned_away").get(pool, 0.0), asked)
        if asked >= self.REQUESTS_LEAST and away >= self.TURNED_AWAY_SHARE:
            signs.append(Evidence("turned_away", away, "ratio", self.TURNED_AWAY_SHARE))
        if (queue := readings.by_pool("queue").get(pool, 0.0)) >= 1:
            signs.append(Evidence("queue", queue, "requests", 1.0,
                                  f"sum({of('headworks_gateway_queue_length', pool=pool)})"))  # fmt: skip
        return signs

    def _evidence(self, fleet: Fleet, late: Mapping[str, Mapping[str, float]]) -> Iterator[Evidence]:
        for engine, slow in sorted(late.items()):
            budgets = {each["phase"]: each["budget_ms"] for each in fleet.engines[engine]["cold_start"]["phases"]}
            for phase, seconds in slow.items():
                budget = budgets.get(phase)
                limit = budget / 1000 if budget is not None else self.TOTAL_SECONDS if phase == _TOTAL else None
                yield Evidence(f"{phase}_of_{engine}", seconds, "seconds", limit,
                               of("headworks_engine_start_phase_seconds", engine=engine, phase=phase))  # fmt: skip

    def _levers(
        self, readings: Readings, fleet: Fleet, pool: str, late: Mapping[str, Mapping[str, float]],
        rows: Sequence[Mapping[str, Any]],
    ) -> Iterator[Lever]:  # fmt: skip
        phases = {phase for slow in late.values() for phase in slow}
        if phases & {"load_weights", "load_model"}:
            yield self._local_files(readings, fleet, pool, sorted(late))
        for phase, (title, advice) in _BY_PHASE.items():
            if phase in phases:
                yield Lever(phase, title, format_lazy(_("{phase} is what takes long"), phase=phase), advice=advice)
        yield self._spare(readings, pool, len(rows))
        yield from self._budget(fleet, pool, rows)

    def _spare(self, readings: Readings, pool: str, engines: int) -> Lever:
        now, peak = readings.by_pool("now").get(pool, 0.0), readings.by_pool("peak").get(pool, 0.0)
        wanted = max(1, math.ceil(engines * (peak / now - 1))) if now > 0 and peak > now else 1
        why = format_lazy(
            _("{engines} engines make {now} tokens a second now; the hour's peak was {peak}"),
            engines=engines, now=f"{now:.0f}", peak=f"{peak:.0f}",
        ) if peak > now > 0 else _("What takes minutes to start has to run before the wave")  # fmt: skip
        advice = format_lazy(
            _("Spare engines of {pool} to keep warm: {wanted}; asleep at level 1 where GPUs are shared, else in "
              "service. Scale by queue length, waiting tokens and TTFT p95 as KEDA or an HPA reads them from the "
              "control plane, up at once and down after several times the start."),
            wanted=wanted, pool=pool,
        )  # fmt: skip
        return Lever("warm_spare", _("Keep a warm spare"), why, advice=advice)

    def _local_files(self, readings: Readings, fleet: Fleet, pool: str, late: list[str]) -> Lever:
        network = named(readings.by("network_bytes", "engine"))
        model = fleet.models.get(fleet.pools[pool].row["model"], {})
        nodes = sorted({str(fleet.engines[name]["node"]) for name in late if fleet.engines[name]["node"]})
        commands: tuple[Command, ...] = ()
        if model.get("manifest") and model.get("files_folder"):
            files = {"manifest": model["manifest"], "folder": model["files_folder"]}
            commands = tuple(Command(f"node/{node}", "fetch_model", files) for node in nodes
                             if may_on_node(fleet, node, "fetch_model"))  # fmt: skip
        remote = [name for name in late if network.get(name, 0.0) > 0]
        why: Promise | str = _("Weights are read from disk first")
        if remote:
            why = format_lazy(
                _("{engines} read {gib} GiB over the network"), engines=", ".join(remote),
                gib=f"{sum(network[name] for name in remote) / 2**30:.1f}",
            )  # fmt: skip
        advice = _(
            "Put the model's files on the nodes' own disks before they start (fetch_model, or a rollout that does), "
            "out of the image, and have the engine load them in parallel (vLLM: --load-format, safetensors)."
        )
        return Lever("local_files", _("Have the weights on local disk"), why, commands=commands, advice=advice)

    def _budget(self, fleet: Fleet, pool: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[Lever]:
        """Where nothing is promised: what the fastest engine of the pool has shown."""
        name = fleet.pools[pool].row["model"]
        model = fleet.models.get(name)
        starts = [{each["phase"]: each["took_ms"] for each in row["cold_start"]["phases"] if each["took_ms"]}
                  for row in rows]  # fmt: skip
        known = [start for start in starts if start.get(_TOTAL)]
        if model is None or model["cold_start_budget_ms"] or len(known) < 2:
            return
        best = min(known, key=lambda start: start[_TOTAL])
        budget = {phase: math.ceil(self.BUDGET_ROOM * took_ms) for phase, took_ms in best.items()}
        why = format_lazy(_("The fastest start took {seconds} s; a quarter more is the budget, phase by phase"),
                          seconds=f"{best[_TOTAL] / 1000:.0f}")  # fmt: skip
        yield Lever("budget", _("Set a budget for starts"), why,
                    (Edit("models", name, {"cold_start_budget_ms": budget}),))  # fmt: skip


_BY_PHASE = {
    "torch_compile": (
        _("Keep what was compiled"),
        _("Keep vLLM's cache of compiled kernels (VLLM_CACHE_ROOT) on a disk that outlives the process, one for each "
          "version and kind of GPU; --enforce-eager leaves it out, and decode is slower then."),
    ),
    "capture_graphs": (
        _("Capture fewer graphs"),
        _("Name the batch sizes that occur (--cuda-graph-sizes): by default dozens are captured. --enforce-eager "
          "captures none, and small batches decode slower then."),
    ),
    "init_engine": (
        _("See what the start does beside loading"),
        _("It profiles memory, compiles and captures graphs: a cache of compiled kernels and fewer graph sizes shorten "
          "it."),
    ),
}  # fmt: skip


def _recent(engine: Mapping[str, Any], at: datetime, span: timedelta) -> bool:
    """Whether it began within the span; of an engine that does not tell nothing is known."""
    started = engine["started_at"]
    return started is not None and timedelta(0) <= at - datetime.fromisoformat(started) <= span


def _starts(engine: Mapping[str, Any], fleet: Fleet) -> bool:
    """Whether it is on its way: down since somebody asked for its restart, which makes that event a warning."""
    told = [each for each in fleet.events
            if each["subject"] == engine["name"] and each["kind"] in ("engine_down", "engine_up")]  # fmt: skip
    return engine["state"] == "starting" or (
        engine["state"] == "down"
        and bool(told)
        and (told[-1]["kind"], told[-1]["severity"]) == ("engine_down", "warning")
    )


def _said(pool: str, late: Mapping[str, Mapping[str, float]], starting: list[str]) -> Promise | str:
    if not late:
        return format_lazy(
            _("{pool} is short of capacity while {engines} start"), pool=pool, engines=", ".join(starting)
        )
    engine = max(late, key=lambda name: max(late[name].values()))
    phase, seconds = next(iter(late[engine].items()))
    return format_lazy(
        _("{engine} of {pool} took {seconds} s for {phase} of its start"),
        engine=engine, pool=pool, seconds=f"{seconds:.0f}", phase=phase,
    )  # fmt: skip
