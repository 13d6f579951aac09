"""Row 16: the process before the GPU is full, and the GPU waits for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Command, Detector, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors.confidence import combined, lowered
from controlplane.diagnosis.detectors.engine_acts import drained_restart
from controlplane.diagnosis.detectors.numbers import named, of
from controlplane.diagnosis.detectors.processors import BUSY_GPU, FULL_CORES, GPU_OF_ENGINE, IDLE_GPU
from controlplane.diagnosis.detectors.promql import counted, mean, typical
from controlplane.diagnosis.detectors.restarting import desired
from wire.engine_arguments import whole_of


@dataclass(frozen=True)
class _Seen:
    """Of one engine. None: not known. `gap_seconds`: of the first token's way, what neither queue nor engine took."""

    cores: float
    processes: int
    gpu_ratio: float | None
    gap_seconds: float
    waits: float


class ApiServerBound(Detector):
    """The API server's processes are at a whole core each, while the engine's GPUs have time and requests wait.

    A GPU that is busy is the bound itself: then this is silent, whatever the CPU does. An engine that compiles schemas
    (row 17) has an idle GPU and a busy CPU, too, which lowers the finding where new schemas come in. Where GPUs are not
    known the time that tokens spend between the engine and the gateway has to tell it.
    """

    number = 16
    name = "api_server_bound"
    title = _("API server bound")
    explanation = _(
        "For each token that is generated an id becomes text, an event, JSON and a write to a socket. Hundreds of "
        "streams do that thousands of times a second, and one CPython process does it one after another. The GPU's use "
        "falls, the queue grows, the engine's own numbers look normal, and end-to-end latency rises."
    )
    queries: ClassVar = {
        "cores": 'sum by (engine) (rate(headworks_engine_process_cpu_seconds_total{role="api"}[$window]))',
        "gpu": GPU_OF_ENGINE,
        "waiting": typical("headworks_engine_requests_waiting", "engine"),
        "backlog": 'max by (engine) (max_over_time(headworks_engine_connections{state="backlog"}[$window]))',
        "queue": typical("headworks_gateway_queue_length", "pool"),
        "gateway_ttft": mean("headworks_gateway_ttft_seconds", "pool"),
        "gateway_queue": mean("headworks_gateway_queue_seconds", "pool"),
        "engine_ttft": mean("headworks_engine_ttft_seconds", "pool"),
        "unseen": counted("headworks_gateway_unseen_schemas_total", "pool"),
        "cpus": "max by (node) (headworks_host_cpus)",
        "gateway_cores": "sum by (gateway) (rate(headworks_gateway_cpu_seconds_total[$window]))",
    }
    # Twice the way of a first token through a gateway and a network that are well (docs/measuring.md: 2 ms at most).
    GAP_SECONDS = 0.2
    # Each process should have so much of a core to do.
    WANTED_CORES = 0.6
    # Two or three tokens a write halve the calls, and nobody sees it. Source: seed 1, section 16.
    TOKENS_A_WRITE = 3
    SCHEMAS_MANY = 5.0

    def judge(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        for engine, cores in sorted(named(readings.by("cores", "engine")).items()):
            if engine not in fleet.engines:
                continue
            seen = self._seen(readings, fleet, engine, cores)
            if seen.cores / seen.processes < FULL_CORES:
                continue
            if seen.gpu_ratio is not None and seen.gpu_ratio >= BUSY_GPU:
                continue
            signals = self._signals(seen)
            if not signals:
                continue
            pool = str(fleet.engines[engine]["pool"])
            confidence = combined(500, *signals)
            if readings.by_pool("unseen").get(pool, 0.0) >= self.SCHEMAS_MANY:
                confidence = lowered(confidence, 600)
            said = format_lazy(
                _("The API server of {engine} takes {cores} cores in {processes} processes, and its GPUs wait"),
                engine=engine, cores=f"{seen.cores:.2f}", processes=seen.processes,
            )  # fmt: skip
            yield Finding(
                f"engine/{engine}", said, confidence, self._evidence(fleet, engine, seen), (pool,),
                tuple(fleet.tenants_of.get(pool, {})), tuple(self._levers(readings, fleet, engine, seen)),
            )  # fmt: skip
        yield from self._gateways(readings, fleet)

    def _seen(self, readings: Readings, fleet: Fleet, engine: str, cores: float) -> _Seen:
        pool = str(fleet.engines[engine]["pool"])
        gpu = named(readings.by("gpu", "engine")).get(engine)
        waits = (named(readings.by(query, "engine")).get(engine, 0.0) for query in ("waiting", "backlog"))
        return _Seen(
            cores, _processes(fleet, engine), None if gpu is None else gpu / 100, self._gap(readings, pool),
            sum(waits) + readings.by_pool("queue").get(pool, 0.0),
        )  # fmt: skip

    def _gap(self, readings: Readings, pool: str) -> float:
        """0 where something of it is not known."""
        parts = [readings.by_pool(query).get(pool) for query in ("gateway_ttft", "gateway_queue", "engine_ttft")]
        whole, queue, engine = parts
        return 0.0 if whole is None or queue is None or engine is None else max(0.0, whole - queue - engine)

    def _signals(self, seen: _Seen) -> list[int]:
        """What says that it is this process that others wait for."""
        signals = [600] * (seen.gpu_ratio is not None and seen.gpu_ratio < IDLE_GPU)
        signals += [600] * (seen.gap_seconds >= self.GAP_SECONDS)
        # Requests wait for a full GPU as well: without a word of that it says little.
        signals += [300] * (seen.waits >= 1 and (seen.gpu_ratio is not None or seen.gap_seconds > 0))
        return signals

    def _evidence(self, fleet: Fleet, engine: str, seen: _Seen) -> tuple[Evidence, ...]:
        window = fleet.window_seconds
        cores = of("headworks_engine_process_cpu_seconds_total", window, engine=engine, role="api")
        found = [
            Evidence("cores_a_process", seen.cores / seen.processes, "ratio", FULL_CORES,
                     f"sum(rate({cores})) / {seen.processes}"),
            Evidence("waiting", seen.waits, "requests", 1.0, of("headworks_engine_requests_waiting", engine=engine)),
            Evidence("between_engine_and_gateway", seen.gap_seconds, "seconds", self.GAP_SECONDS),
        ]  # fmt: skip
        if seen.gpu_ratio is not None:
            used = f'group by (node, UUID) (headworks_gpu_processes{{engine="{engine}"}})'
            expr = f"avg(max by (node, UUID) (DCGM_FI_DEV_GPU_UTIL) * on (node, UUID) {used}) / 100"
            found.append(Evidence("gpu_used", seen.gpu_ratio, "ratio", IDLE_GPU, expr))
        return tuple(found)

    def _levers(self, readings: Readings, fleet: Fleet, engine: str, seen: _Seen) -> Iterator[Lever]:
        row = fleet.engines[engine]
        if row["kind"] != "vllm":
            yield Lever("more_servers", _("Run more API servers"), _("Its server is one process"), advice=_(
                "Put several of its HTTP frontends before one engine, where it has that, or run more, smaller engines; "
                "use a detokenizer that is no Python (a fast tokenizer)."))  # fmt: skip
            return
        wanted = max(seen.processes + 1, math.ceil(seen.cores / self.WANTED_CORES))
        cpus = named(readings.by("cpus", "node")).get(row["node"] or "")
        if cpus is not None:
            wanted = min(wanted, max(seen.processes + 1, math.floor(cpus / 2)))
        why = format_lazy(
            _("{cores} cores at {wanted_cores} of a core each: {wanted} processes instead of {now}"),
            cores=f"{seen.cores:.2f}", wanted_cores=self.WANTED_CORES, wanted=wanted, now=seen.processes,
        )  # fmt: skip
        yield self._arguments(fleet, engine, "api_servers", _("Run more API servers"), why,
                              {"api-server-count": wanted})  # fmt: skip
        if whole_of("stream-interval", row["arguments"]) in (None, 1):
            why = format_lazy(_("Each write tells {tokens} tokens instead of one"), tokens=self.TOKENS_A_WRITE)
            yield self._arguments(fleet, engine, "tokens_a_write", _("Write several tokens at once"), why,
                                  {"stream-interval": self.TOKENS_A_WRITE})  # fmt: skip

    def _arguments(
        self, fleet: Fleet, engine: str, key: str, title: Promise, why: Promise | str, arguments: dict[str, int]
    ) -> Lever:
        """The pool desires them, and this engine is restarted with them."""
        pool = str(fleet.engines[engine]["pool"])
        facts = fleet.pools.get(pool)
        edits = () if facts is None else desired(facts, arguments)
        commands: tuple[Command, ...] = drained_restart(fleet, engine, arguments)
        advice = _(
            "Restart one engine after another (a rolling restart) and uncordon each. With several API servers vLLM's "
            "own process_… series vanish; the agent's go on."
        )
        return Lever(key, title, why, edits, commands, advice)

    def _gateways(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        """A gateway's loop is one thread, too."""
        slow = {pool: gap for pool in fleet.pools if (gap := self._gap(readings, pool)) >= self.GAP_SECONDS}
        if not slow:
            return
        for gateway, cores in sorted(named(readings.by("gateway_cores", "gateway")).items()):
            if cores < FULL_CORES:
                continue
            worst = max(slow, key=lambda pool: slow[pool])
            evidence = (
                Evidence("cores", cores, "ratio", FULL_CORES,
                         f"rate({of('headworks_gateway_cpu_seconds_total', fleet.window_seconds, gateway=gateway)})"),
                Evidence("between_engine_and_gateway", slow[worst], "seconds", self.GAP_SECONDS),
            )  # fmt: skip
            said = format_lazy(_("Gateway {gateway} takes {cores} cores, as much as one can"),
                               gateway=gateway, cores=f"{cores:.2f}")  # fmt: skip
            advice = _("Gateways keep no state of their own: add one, and see that the balancer counts connections.")
            levers = (Lever("another_gateway", _("Add a gateway"), said, advice=advice),)
            pools = tuple(sorted(slow))
            yield Finding(f"gateway/{gateway}", said, combined(500, 400), evidence, pools, levers=levers)


def _processes(fleet: Fleet, engine: str) -> int:
    """How many API servers it was started with; vLLM has one for each data-parallel rank unless it is told."""
    row = fleet.engines[engine]
    for name in ("api-server-count", "data-parallel-size"):
        count = whole_of(name, row["arguments"])
        if count is not None and count > 0:
            return count
    return 1
