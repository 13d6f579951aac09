"""The embedded store answers as a real Prometheus does, on the same samples.

Debian has Prometheus 2.42, whose ranges are closed on the left where version 3's, and ours, are open: no sample lies on
the edge of a window here. Where the two extrapolate a counter to its zero point differently (a first sample far from
the window's start), test_windows.py compares with version 3's formula instead: counters here start high.
"""

from __future__ import annotations

import json
import math
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings

from controlplane.telemetry.embedded import steps, with_steps
from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.errors import QueryError
from controlplane.telemetry.promql.evaluation import Evaluation
from controlplane.telemetry.promql.grammar import parse
from controlplane.telemetry.results import instant_json, range_json
from controlplane.telemetry.store.packing import pack
from controlplane.telemetry.store.reader import Reader
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.telemetry.filling import store
from tests.controlplane.telemetry.promql.any_query import ANY_PATTERN, ANY_QUERY, ANY_VALUE
from tests.controlplane.telemetry.promql.any_range_query import ANY_RANGE_QUERY
from tests.controlplane.telemetry.promql.basic_queries import BASIC_QUERIES
from tests.controlplane.telemetry.promql.instant_queries import INSTANT_QUERIES
from tests.controlplane.telemetry.promql.range_queries import RANGE_QUERIES
from tests.controlplane.telemetry.upstreams import RealServer
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, STALE, VERSION, VERSION_HEADER, Series, encode

STEP_MS = 15_000
COUNT = 200
# Off every whole second, and so off every window's edge.
JITTER_MS = 437
RELATIVE = 1e-9
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


class Twins(NamedTuple):
    """The same samples in both; times in ms, whole seconds."""

    url: str
    reader: Reader
    begin_ms: int
    end_ms: int

    def theirs(self, path: str, **parameters: Any) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def ours(self, query: str, times_ms: Any, *, instant: bool, end_ms: int | None = None) -> Any:
        bounds_ms = (int(times_ms[0]), end_ms or int(times_ms[-1]))
        try:
            evaluation = Evaluation(times_ms, self.reader.select, Budget(50_000_000, 60), bounds_ms=bounds_ms)
            value = evaluation.evaluate(parse(query))
            data = instant_json(value, int(times_ms[0])) if instant else range_json(with_steps(value), times_ms)
        except QueryError as error:
            return {"status": "error", "errorType": error.error_type, "error": str(error)}
        return {"status": "success", "data": json.loads(data)}


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    folder: Path = tmp_path_factory.mktemp("twins")
    server = RealServer("prometheus", folder)
    begin_ms = int(time.time() - COUNT * STEP_MS / 1000) * 1000
    series = samples(begin_ms)
    path = folder / "metrics.sqlite3"
    # Half of it packed, half not: both are read together.
    half = [Series(each.labels, each.samples[: COUNT // 2]) for each in series]
    rest = [Series(each.labels, each.samples[COUNT // 2 :]) for each in series]
    owner = Owner("node", "n-1")
    store(path, half, owner)
    assert pack(path, 2**60) == sum(len(each.samples) for each in half)
    store(path, rest, owner)
    with server.running():
        headers = {"Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING, VERSION_HEADER: VERSION}
        for part in (half, rest):
            request = urllib.request.Request(server.settings["HEADWORKS_REMOTE_WRITE_URL"], encode(part), headers)
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert answer.status == 204
        yield Twins(server.base, Reader(path), begin_ms, begin_ms + COUNT * STEP_MS)


def rows_of(answer: dict[str, Any]) -> Any:
    """Results by label set, times as ms and values as numbers."""
    data = answer["data"]
    if data["resultType"] in ("scalar", "string"):
        return data["resultType"], {"": [(round(data["result"][0] * 1000), data["result"][1])]}
    rows = {
        json.dumps(row["metric"], sort_keys=True): [
            (round(at * 1000), value) for at, value in row.get("values") or [row["value"]]
        ]
        for row in data["result"]
    }
    assert len(rows) == len(data["result"]), "a label set came twice"
    return data["resultType"], rows


def same(kind: str, ours: str, theirs: str) -> bool:
    if kind == "string":
        return ours == theirs
    first, second = float(ours), float(theirs)
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    return first == second or math.isclose(first, second, rel_tol=RELATIVE)


def check(query: str, ours: dict[str, Any], theirs: dict[str, Any], *, filters: bool = False) -> None:
    """`filters`: of several matches, a comparison may leave one; that is ambiguous since version 3.9 alone."""
    if filters and theirs["status"] == "success" and ours.get("error", "").startswith("multiple matches for labels"):
        return
    assert ours["status"] == theirs["status"], (query, ours, theirs)
    if theirs["status"] == "error":
        assert ours["errorType"] == theirs["errorType"], (query, ours, theirs)
        return
    (kind, own), (their_kind, other) = rows_of(ours), rows_of(theirs)
    assert kind == their_kind
    assert own.keys() == other.keys(), query
    for labels, points in own.items():
        assert [at for at, _ in points] == [at for at, _ in other[labels]], (query, labels)
        for (at, value), (_, expected) in zip(points, other[labels], strict=True):
            assert same(kind, value, expected), (query, labels, at, value, expected)


def compare(twins: Twins, query: str, *, filters: bool = False) -> None:
    """As an instant query at several moments, and as a range query."""
    # A second after a sample is due, so that it has come.
    for share in (0.3, 0.41, 0.55, 0.97):
        at_ms = twins.begin_ms + int(share * COUNT) * STEP_MS + 1000
        theirs = twins.theirs("query", query=query, time=at_ms / 1000)
        check(query, twins.ours(query, steps(at_ms, at_ms, 1), instant=True), theirs, filters=filters)
    # An odd step: windows begin and end at all places between samples, but never on one.
    start_ms, end_ms, step_ms = twins.begin_ms - 60_000, twins.end_ms + 400_000, 31_000
    asked = {"query": query, "start": start_ms / 1000, "end": end_ms / 1000, "step": step_ms / 1000}
    ours = twins.ours(query, steps(start_ms, end_ms, step_ms), instant=False, end_ms=end_ms)
    check(query, ours, twins.theirs("query_range", **asked), filters=filters)


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
