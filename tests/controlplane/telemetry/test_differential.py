"""The embedded store answers as a real Prometheus does, on the same samples (twins.py)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from controlplane.telemetry.embedded import steps
from tests.controlplane.telemetry.promql.any_query import ANY_PATTERN, ANY_QUERY, ANY_VALUE
from tests.controlplane.telemetry.promql.any_range_query import ANY_RANGE_QUERY
from tests.controlplane.telemetry.promql.basic_queries import BASIC_QUERIES
from tests.controlplane.telemetry.promql.instant_queries import INSTANT_QUERIES
from tests.controlplane.telemetry.promql.range_queries import RANGE_QUERIES
from tests.controlplane.telemetry.twins import COUNT, JITTER_MS, STEP_MS, Twins, check, compare, running_twins
from wire.write_body import STALE, Series

# By kind and bound: by how much a count grows a step.
BROKEN_BUCKETS = {
    "falls": {"1": 10.0, "2": 5.0, "4": 30.0, "+Inf": 20.0},
    "endless": {"1": 10.0, "2": 20.0},
    "lonely": {"+Inf": 20.0},
    "twice": {"1": 10.0, "1.0": 12.0, "1e0": 1.0, "2": 30.0, "+Inf": 40.0},
    "unordered": {"0.1": 10.0, "0.2": math.nan, "0.3": 30.0, "0.4": math.nan, "0.5": 50.0, "+Inf": 60.0},
    "unknown": {"1": 10.0, "2": 20.0, "+Inf": math.nan},
    "infinite": {"1": 10.0, "2": math.inf, "+Inf": math.inf},
    "wordy": {"1": 10.0, "two": 20.0, " 3": 25.0, "1_0": 26.0, "1e400": 27.0, "infinity": 30.0},
    "negative": {"-3": 10.0, "-1": 20.0, "+Inf": 30.0},
}
# Around leap years, before 1970, and far from now.
MOMENTS = {"n-1": 1_709_000_000.0, "n-2": -86_400.0 * 100, "n-3": 4_107_500_000.0}
PATHS = {
    "n-1": ("/models/llama-3-70b", "registry:5000/vllm:v0.6.1"),
    "n-2": ("/models/qwen-2.5-7b", "vllm:latest"),
    "n-3": ("/srv/\u00fcber/model-1b", "sglang"),
}


def samples(begin_ms: int) -> list[Series]:
    """Gauges, counters with resets, histograms, gaps, ends, special values; the same for every run."""
    dice = random.Random(7)
    times = [begin_ms + JITTER_MS + place * STEP_MS + dice.randrange(100) for place in range(COUNT)]
    found = []

    def add(name: str, labels: dict[str, str], values: list[float | None]) -> None:
        rows = [(at, value) for at, value in zip(times, values, strict=True) if value is not None]
        found.append(Series({"__name__": name, **labels}, rows))

    for node in ("n-1", "n-2", "n-3"):
        for gpu in ("0", "1"):
            own = {"node": node, "gpu": gpu}
            add("temperature", own, [round(dice.gauss(60, 8), 4) for _ in range(COUNT)])
            add("limit", own, [float(80 + int(gpu))] * COUNT)
            add("power", own, [None if dice.random() < 0.3 else dice.uniform(-50, 700) for _ in range(COUNT)])
            total, counter = dice.randrange(10**6, 10**7), []
            for place in range(COUNT):
                total = dice.randrange(10**5, 10**6) if dice.random() < 0.02 else total + dice.randrange(5000)
                counter.append(None if 60 < place < 75 else float(total))
            add("tokens_total", own, counter)
        add("info", {"node": node, "driver": f"5{node[-1]}0", "model": "H200"}, [1.0] * COUNT)
        # Ends, is marked stale, and comes back.
        flapping = [*map(float, range(80)), STALE, *[None] * 69, *[-1.0] * 50]
        add("flapping", {"node": node}, flapping)
        add("special", {"node": node}, [(math.nan, math.inf, -math.inf, 0.0, -2.5)[at % 5] for at in range(COUNT)])
        buckets = [10**6 + dice.randrange(1000) for _ in range(5)]
        columns: list[list[float | None]] = [[] for _ in range(6)]
        for _ in range(COUNT):
            buckets = [count + dice.randrange(20) for count in buckets]
            running = 0.0
            for column, count in zip(columns, [*buckets, 0], strict=True):
                running += count
                column.append(running)
        for bound, column in zip(("0.005", "0.01", "0.1", "1", "2.5", "+Inf"), columns, strict=True):
            add("ttft_seconds_bucket", {"node": node, "le": bound}, column)
    for bound, share in (("-1", 0.1), ("0", 0.4), ("5", 0.9), ("+Inf", 1.0)):
        add("drift_bucket", {"node": "n-1", "le": bound}, [1e6 + 1000 * share * at for at in range(COUNT)])
    for kind, rises in BROKEN_BUCKETS.items():
        for bound, rise in rises.items():
            add("broken_bucket", {"node": "n-1", "kind": kind, "le": bound}, [1e6 + rise * at for at in range(COUNT)])
    for node, first in MOMENTS.items():
        add("moments", {"node": node}, [first + 86_400.5 * at for at in range(COUNT)])
    for node, (model, image) in PATHS.items():
        add("paths", {"node": node, "model": model, "image": image}, [1.0] * COUNT)
    add("late", {"node": "n-1"}, [None if at < 190 else 3.0 for at in range(COUNT)])
    add("other", {"pool": "short"}, [2.0] * COUNT)
    return found


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with running_twins(tmp_path_factory.mktemp("twins"), samples) as both:
        yield both


@pytest.mark.parametrize("query", [*BASIC_QUERIES, *RANGE_QUERIES, *INSTANT_QUERIES])
def test_a_query_gives_what_prometheus_gives(twins, query):
    compare(twins, query)


ANY = settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@ANY
@given(query=ANY_QUERY)
def test_any_query_gives_what_prometheus_gives(twins, query):
    compare(twins, query)


@ANY
@given(query=ANY_RANGE_QUERY)
def test_any_query_over_ranges_gives_what_prometheus_gives(twins, query):
    compare(twins, query, filters=True)


@ANY
@given(regex=ANY_PATTERN, value=ANY_VALUE)
def test_any_pattern_finds_the_groups_that_prometheus_finds(twins, regex, value):
    at_ms = twins.begin_ms
    query = (
        f'label_replace(label_replace(vector(1), "from", "{value}", "", ""),'
        f' "to", "[$0][$1][$2][$3]", "from", `(?:{regex})(.*)`)'
    )
    theirs = twins.theirs("query", query=query, time=at_ms / 1000)
    check(query, twins.ours(query, steps(at_ms, at_ms, 1), instant=True), theirs)
