"""One set of samples in a real Prometheus and in the embedded store, asked the same queries.

Debian has Prometheus 2.42, whose ranges are closed on the left where version 3's, and ours, are open: samples stand
`JITTER_MS` off every whole second, and so off the edge of every window. Where the two extrapolate a counter to its zero
point differently (a first sample far from the window's start), test_windows.py compares with version 3's formula
instead: counters here start high.
"""

from __future__ import annotations

import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

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
from tests.controlplane.telemetry.upstreams import RealServer
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, VERSION, VERSION_HEADER, Series, encode

STEP_MS = 15_000
COUNT = 200
JITTER_MS = 437
RELATIVE = 1e-9


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


@contextmanager
def running_twins(folder: Path, samples: Callable[[int], list[Series]]) -> Iterator[Twins]:
    """Both with `samples` of the moment (Unix time in ms) that is `COUNT` steps ago."""
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
