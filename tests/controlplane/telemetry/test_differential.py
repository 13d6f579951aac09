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
from hypothesis import strategies as st

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
from tests.services import Process, free_port, service_binary
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, STALE, VERSION, VERSION_HEADER, Series, encode

STEP_MS = 15_000
COUNT = 200
# Off every whole second, and so off every window's edge.
JITTER_MS = 437
RELATIVE = 1e-9


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

    def ours(self, query: str, times_ms: Any, *, instant: bool) -> Any:
        try:
            evaluation = Evaluation(times_ms, self.reader.select, Budget(50_000_000, 60))
            value = evaluation.evaluate(parse(query))
            data = instant_json(value, int(times_ms[0])) if instant else range_json(with_steps(value), times_ms)
        except QueryError as error:
            return {"status": "error", "errorType": error.error_type, "error": str(error)}
        return {"status": "success", "data": json.loads(data)}


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    folder: Path = tmp_path_factory.mktemp("twins")
    binary, port = service_binary("prometheus"), free_port()
    begin_ms = int(time.time() - COUNT * STEP_MS / 1000) * 1000
    (folder / "prometheus.yml").write_text("global: {}\n")
    argv: list[str | Path] = [binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver"]  # fmt: skip
    series = samples(begin_ms)
    path = folder / "metrics.sqlite3"
    # Half of it packed, half not: both are read together.
    half = [Series(each.labels, each.samples[: COUNT // 2]) for each in series]
    rest = [Series(each.labels, each.samples[COUNT // 2 :]) for each in series]
    owner = Owner("node", "n-1")
    store(path, half, owner)
    assert pack(path, 2**60) == sum(len(each.samples) for each in half)
    store(path, rest, owner)
    with Process(argv, log=folder / "prometheus.log") as process:
        url = f"http://127.0.0.1:{port}"
        process.wait_for_http(f"{url}/-/ready")
        headers = {"Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING, VERSION_HEADER: VERSION}
        for part in (half, rest):
            request = urllib.request.Request(f"{url}/api/v1/write", encode(part), headers)
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert answer.status == 204
        yield Twins(url, Reader(path), begin_ms, begin_ms + COUNT * STEP_MS)


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


def check(query: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
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


def compare(twins: Twins, query: str) -> None:
    """As an instant query at several moments, and as a range query."""
    # A second after a sample is due, so that it has come.
    for share in (0.3, 0.41, 0.55, 0.97):
        at_ms = twins.begin_ms + int(share * COUNT) * STEP_MS + 1000
        theirs = twins.theirs("query", query=query, time=at_ms / 1000)
        check(query, twins.ours(query, steps(at_ms, at_ms, 1), instant=True), theirs)
    # An odd step: windows begin and end at all places between samples, but never on one.
    start_ms, end_ms, step_ms = twins.begin_ms - 60_000, twins.end_ms + 400_000, 31_000
    asked = {"query": query, "start": start_ms / 1000, "end": end_ms / 1000, "step": step_ms / 1000}
    check(
        query, twins.ours(query, steps(start_ms, end_ms, step_ms), instant=False), twins.theirs("query_range", **asked)
    )


QUERIES = """
temperature
temperature{gpu="0"}
temperature{gpu!="0"}
temperature{node=~"n-[12]"}
temperature{node!~"n-1|n-2"}
{__name__=~"temp.*|limit",gpu="1"}
temperature{absent=""}
temperature{gpu=~".*",absent!~".+"}
nothing_at_all
temperature offset 2m
temperature offset -1m
tokens_total offset 1m30s
flapping
flapping offset 1m
special
-temperature
+temperature
(temperature)
rate(tokens_total[1m])
rate(tokens_total[5m])
rate(tokens_total[37s])
increase(tokens_total[2m])
increase(tokens_total[10m] offset 3m)
irate(tokens_total[1m])
irate(tokens_total[5m])
delta(temperature[3m])
delta(power[3m])
rate(flapping[5m])
sum_over_time(temperature[2m])
avg_over_time(temperature[2m])
min_over_time(temperature[2m])
max_over_time(power[2m])
count_over_time(power[2m])
last_over_time(power[2m])
last_over_time(flapping[10m])
present_over_time(flapping[1m])
count_over_time(flapping[2m])
sum_over_time(special[47s])
avg_over_time(special[47s])
min_over_time(special[47s])
max_over_time(special[47s])
quantile_over_time(0.9, temperature[3m])
quantile_over_time(0, temperature[3m])
quantile_over_time(1, temperature[3m])
quantile_over_time(-1, temperature[3m])
quantile_over_time(2, temperature[3m])
quantile_over_time(0.37, special[3m])
quantile_over_time(scalar(limit{node="n-1",gpu="0"}) / 100, temperature[3m])
sum(temperature)
sum by (node) (temperature)
sum without (node) (temperature)
sum by (missing) (temperature)
avg by (node) (power)
avg(special)
min by (gpu) (power)
max by (gpu) (power)
max(special)
min(special)
sum(special)
count by (node) (power)
count(flapping)
count(nothing_at_all)
group by (node) (temperature)
sum by (node, gpu) (rate(tokens_total[2m]))
topk(2, temperature)
topk by (node) (1, power)
bottomk(3, temperature)
topk(0, temperature)
topk(1.9, temperature)
topk(100, temperature)
temperature + limit
temperature - limit
temperature * 2
2 / temperature
temperature % 7
-7.5 % 2
temperature ^ 2
temperature / 0
special / special
temperature / on (node, gpu) limit
temperature / ignoring (gpu) limit
temperature * on (node) group_left (driver) info
info * on (node) group_right (model) temperature
temperature * on (node) group_left () info
temperature * ignoring (gpu, driver, model) group_left info
sum by (node) (temperature) / on (node) group_right info
temperature > 60
60 > temperature
temperature > bool 60
temperature <= limit
temperature > bool limit
temperature == temperature
temperature != bool temperature
limit - temperature < 20
special > 0
special == special
1 > bool 2
temperature > on (node, gpu) limit - 20
temperature < on (node) group_left () max by (node) (temperature)
temperature and limit
temperature and on (node) flapping
temperature unless on (node) flapping
temperature or limit
temperature{gpu="0"} or temperature
flapping or on (node) limit{gpu="0"}
temperature > 60 and limit > 80
temperature and ignoring (gpu) info
temperature unless temperature{node="n-1"}
nothing_at_all or temperature
nothing_at_all and temperature
temperature + nothing_at_all
histogram_quantile(0.9, ttft_seconds_bucket)
histogram_quantile(0.5, rate(ttft_seconds_bucket[2m]))
histogram_quantile(0.99, sum by (le) (rate(ttft_seconds_bucket[5m])))
histogram_quantile(0, sum by (node, le) (increase(ttft_seconds_bucket[5m])))
histogram_quantile(1, ttft_seconds_bucket)
histogram_quantile(1.5, ttft_seconds_bucket)
histogram_quantile(-0.5, ttft_seconds_bucket)
histogram_quantile(0.5, ttft_seconds_bucket{le!="+Inf"})
histogram_quantile(0.5, temperature)
histogram_quantile(0.5, ttft_seconds_bucket{le=~"0.1|.Inf"})
histogram_quantile(scalar(limit{node="n-1",gpu="0"}) / 100, ttft_seconds_bucket)
histogram_quantile(0.05, rate(drift_bucket[3m]))
histogram_quantile(0.2, rate(drift_bucket[3m]))
histogram_quantile(0.8, rate(drift_bucket[3m]))
histogram_quantile(0.95, rate(drift_bucket[3m]))
histogram_quantile(0.5, drift_bucket{le=~"0|.Inf"})
clamp_min(temperature, 60)
clamp_max(temperature, 60)
clamp(temperature, 55, 65)
clamp(temperature, 65, 55)
clamp_min(special, 1)
clamp_max(special, -1)
abs(power)
ceil(temperature)
floor(power)
round(temperature)
round(power, 0.5)
round(power, 100)
exp(temperature / 100)
ln(power)
log2(temperature)
log10(special)
sqrt(power)
sgn(power)
sgn(special)
absent(nothing_at_all)
absent(nothing_at_all{node="n-1",gpu!="0"})
absent(nothing_at_all{node="n-1",node="n-2",gpu="1"})
absent(flapping)
absent(temperature)
absent(sum(nothing_at_all{node="n-1"}))
time()
time() - 1e9
vector(1)
vector(time())
scalar(limit{node="n-1",gpu="0"})
scalar(limit)
scalar(nothing_at_all)
temperature * scalar(limit{node="n-1",gpu="0"})
1 + 2 * 3 ^ 2
-2 ^ 2
1 / 0
0 / 0
"a text"
late
rate(late[5m])
sum(rate(tokens_total[1m])) / count(info)
100 * (1 - avg by (node) (temperature / limit))
sum(temperature) by (gpu) > 100
count(temperature > 60) or vector(0)
max_over_time(temperature[2m] offset 1m) - temperature
temperature @ 0
temperature @ end()
rate(tokens_total[5m] @ end())
temperature @ start() offset 1m
tokens_total[2m]
temperature + limit{gpu="0"}
temperature * info
temperature * on (node) limit
temperature * on (gpu) limit
limit > on (gpu) temperature
{__name__=~"temperature|limit"} * 2
rate({__name__=~"temperature|limit"}[2m])
temperature == bool on (gpu) limit
temperature > on (node) group_left () temperature
sum(
temperature{gpu=~"("}
unknown_function(temperature)
rate(temperature)
1 > 2
{}
{gpu=~".*"}
sum_over_time(temperature)
temperature offset
temperature[5m] + 1
""".strip().splitlines()


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_prometheus_gives(twins, query):
    compare(twins, query)


NAMES = st.sampled_from(["temperature", "limit", "power", "tokens_total", "flapping", "info", "late"])
MATCHERS = st.sampled_from(["", '{gpu="0"}', '{node=~"n-[12]"}', '{node!="n-3"}', '{gpu!~"1"}', '{driver=""}'])
DURATIONS = st.sampled_from(["17s", "1m", "133s", "5m", "11m"])
OFFSETS = st.sampled_from(["", "", " offset 1m", " offset 197s"])
LABELS = st.lists(st.sampled_from(["node", "gpu", "driver"]), unique=True, max_size=2).map(", ".join)
NUMBERS = st.sampled_from(["0", "1", "2.5", "-3", "60", "1e6"])
OVER_TIME = st.sampled_from(
    ["delta", "irate", "sum_over_time", "avg_over_time", "min_over_time", "max_over_time",
     "count_over_time", "last_over_time", "present_over_time"]
)  # fmt: skip
SELECTORS = st.builds("{}{}{}".format, NAMES, MATCHERS, OFFSETS)
COUNTERS = st.sampled_from(["tokens_total", "ttft_seconds_bucket", "info", "late"])
RATES = st.builds(
    "{}({}{}[{}]{})".format, st.sampled_from(["rate", "increase"]), COUNTERS, MATCHERS, DURATIONS, OFFSETS
)
RANGES = st.builds("{}({}{}[{}]{})".format, OVER_TIME, NAMES, MATCHERS, DURATIONS, OFFSETS)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouping = st.builds("{} ({})".format, st.sampled_from(["by", "without"]), LABELS)
    matching = st.one_of(st.just(""), st.builds("{} ({})".format, st.sampled_from(["on", "ignoring"]), LABELS))
    many = st.builds("on (node) {} ()".format, st.sampled_from(["group_left", "group_right"]))
    operators = st.sampled_from(["+", "-", "*", "/", "%", ">", "<=", "==", "!=", "> bool", "== bool"])
    return st.one_of(
        st.builds(
            "{} {} ({})".format, st.sampled_from(["sum", "avg", "min", "max", "count", "group"]), grouping, inner
        ),
        st.builds("({}) {} {}".format, inner, operators, NUMBERS),
        st.builds("{} {} ({})".format, NUMBERS, operators, inner),
        st.builds("({}) {} {} ({})".format, inner, operators, matching, inner),
        st.builds("({}) {} {} ({})".format, inner, operators, many, inner),
        st.builds("({}) {} {} ({})".format, inner, st.sampled_from(["and", "or", "unless"]), matching, inner),
        st.builds("{}({})".format, st.sampled_from(["abs", "ceil", "floor", "sgn", "absent", "-", "round"]), inner),
        st.builds("clamp_min({}, {})".format, inner, NUMBERS),
    )


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(query=st.recursive(st.one_of(SELECTORS, RANGES, RATES), grown, max_leaves=4))
def test_any_query_gives_what_prometheus_gives(twins, query):
    compare(twins, query)
