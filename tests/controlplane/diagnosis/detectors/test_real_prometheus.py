"""What detectors of rows 1 to 10 ask has a real Prometheus' answers, on what a fleet pushes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator

import pytest

from controlplane.diagnosis.asking import expressions
from tests.controlplane.diagnosis.detectors.test_any_readings import DETECTORS
from tests.controlplane.telemetry.twins import COUNT, JITTER_MS, STEP_MS, Twins, compare, running_twins
from wire.write_body import Series

QUERIES = list(dict.fromkeys(promql for detector in DETECTORS for promql in expressions(detector, 60).values()))
BOUNDS = ("0.01", "0.1", "1", "10", "+Inf")
POOLS = {"chat": "e-1", "long": "e-2"}
ENDED = (
    ("ok", "none"),
    ("refused", "queue_full"),
    ("refused", "rpm_limit"),
    ("failed", "engine_error"),
    ("cancelled", "client_left"),
)
# From here on one of the gateways says nothing more: it was killed.
GONE = 120
# Counters by their labels beside pool, tenant and gateway.
COUNTED: dict[str, list[dict[str, str]]] = {
    "requests_total": [{"outcome": outcome, "reason": reason} for outcome, reason in ENDED],
    "repeated_requests_total": [{"kind": "retry"}, {"kind": "duplicate"}],
    "slo_requests_total": [{"outcome": "met"}, {"outcome": "missed"}],
    **{f"sized_{kind}_total": [{"size": "under_256"}, {"size": "larger"}]
       for kind in ("requests", "prompt_tokens", "ttft_seconds")},
    **{name: [{}] for name in (
        "prompt_tokens_total", "generation_tokens_total", "requests_without_max_tokens_total",
        "cache_hostile_prompts_total", "sessions_near_limit_total",
    )},
}  # fmt: skip
ENGINE_COUNTERS = (
    "preemptions_total", "restarts_total", "prefix_cache_queries_tokens_total", "prefix_cache_hits_tokens_total",
)  # fmt: skip
ENGINE_GAUGES = ("requests_running", "requests_waiting", "kv_cache_usage_ratio", "out_of_memory_exit")


class Pushed:
    """Series with values that dice decide; a counter begins anew now and then."""

    def __init__(self, begin_ms: int) -> None:
        self.series: list[Series] = []
        self._dice = random.Random(7)
        self._times = [begin_ms + JITTER_MS + at * STEP_MS + self._dice.randrange(100) for at in range(COUNT)]

    def add(self, name: str, labels: dict[str, str], values: Iterable[float]) -> None:
        samples = list(zip(self._times, values, strict=False))
        # An engine's own have their own prefix.
        self.series.append(Series({"__name__": name if ":" in name else f"headworks_{name}", **labels}, samples))

    def gauge(self, name: str, labels: dict[str, str], count: int = COUNT) -> None:
        self.add(name, labels, [round(self._dice.uniform(0.01, 9), 3) for _ in range(count)])

    def counter(self, name: str, labels: dict[str, str], count: int = COUNT) -> None:
        self.add(name, labels, self._growing(count))

    def histogram(self, name: str, labels: dict[str, str], count: int = COUNT) -> None:
        running = [0.0] * count
        for bound in BOUNDS:
            running = [sum(pair) for pair in zip(running, self._growing(count), strict=True)]
            self.add(f"{name}_bucket", {**labels, "le": bound}, running)
        self.add(f"{name}_count", labels, running)
        self.counter(f"{name}_sum", labels, count)

    def _growing(self, count: int) -> list[float]:
        total, column = float(self._dice.randrange(10**6, 10**7)), []
        for _ in range(count):
            total = 10.0**6 if self._dice.random() < 0.01 else total + self._dice.randrange(40)
            column.append(total)
        return column


def fleet(begin_ms: int) -> list[Series]:
    pushed = Pushed(begin_ms)
    for gateway, count in (("gw-1", COUNT), ("gw-2", GONE)):
        for pool, engine in POOLS.items():
            here = {"gateway": gateway, "pool": pool}
            for name in ("queue_length", "pool_requests"):
                pushed.gauge(f"gateway_{name}", here, count)
            for name in ("kv_reserved_tokens", "kv_others_tokens"):
                pushed.gauge(f"gateway_{name}", {**here, "engine": engine}, count)
        for pool, tenant in itertools.product(POOLS, ("acme", "beta")):
            whose = {"gateway": gateway, "pool": pool, "tenant": tenant}
            for name, others in COUNTED.items():
                for other in others:
                    pushed.counter(f"gateway_{name}", {**whose, **other}, count)
            for name in ("queue_seconds", "ttft_seconds", "tpot_seconds"):
                pushed.histogram(f"gateway_{name}", whose, count)
    for pool, engine in POOLS.items():
        where = {"node": "n-1", "engine": engine, "pool": pool, "kind": "vllm"}
        for name in ENGINE_COUNTERS:
            pushed.counter(f"engine_{name}", where)
        pushed.counter("engine_requests_finished_total", {**where, "reason": "stop"})
        for name in ENGINE_GAUGES:
            pushed.gauge(f"engine_{name}", where)
        for part in ("asked", "free"):
            pushed.gauge("engine_out_of_memory_bytes", {**where, "part": part})
        for name in ("inter_token_latency_seconds", "queue_seconds", "ttft_seconds"):
            pushed.histogram(f"engine_{name}", where)
        pushed.histogram("vllm:iteration_tokens_total", where)
    for gpu, peer in (("0", "1"), ("1", "0")):
        pushed.gauge("gpu_topology_info", {"node": "n-1", "gpu": gpu, "peer": peer, "link": "SYS"})
        for holder in ({"engine": "e-1"}, {}):
            pushed.gauge("gpu_process_memory_bytes", {"node": "n-1", "gpu": gpu, **holder})
    return pushed.series


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with running_twins(tmp_path_factory.mktemp("twins"), fleet) as both:
        yield both


@pytest.mark.parametrize("query", QUERIES)
def test_a_question_gives_what_prometheus_gives(twins: Twins, query: str):
    compare(twins, query)
    asked = {"query": query, "start": twins.begin_ms / 1000, "end": twins.end_ms / 1000, "step": 15}
    assert twins.theirs("query_range", **asked)["data"]["result"], "nothing was compared"
