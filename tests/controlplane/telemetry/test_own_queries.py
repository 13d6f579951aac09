"""The queries that the product asks by itself have a real Prometheus' answers, on what a fleet pushes."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path

import promql_parser as ast
import pytest
import yaml

from controlplane.alerts.rule_file.series_notation import labels_of, values_of
from controlplane.configs import pool_means
from controlplane.demo_check import cordoning
from controlplane.telemetry.promql.binary import COMPARISON, SETS
from controlplane.telemetry.recording.builtin import builtin
from controlplane.web import readings
from dashboards.charts import CHARTS
from dashboards.spans import SPANS
from tests.controlplane.telemetry.twins import COUNT, JITTER_MS, STEP_MS, Twins, compare, running_twins
from wire.write_body import STALE, Series, key_of

DOCUMENTATION = Path(__file__).parents[3] / "docs"
PAGES = [query.over(span) for chart in CHARTS for query in chart.queries for span in SPANS.values()]
RECORDING_RULES = [rule for group in builtin()["groups"] for rule in group["rules"]]
RECORDED = [rule["expr"] for rule in RECORDING_RULES]
PACK = Path(__file__).parents[3] / "controlplane/alerts/pack"
HEALTHY = yaml.safe_load((PACK / "tests/healthy_test.yml").read_text())["tests"][0]["input_series"]


def compared(tree: ast.Expr) -> Iterator[str]:
    """What a rule compares: the fleet here is well, so that the whole has no result. Its unit tests fire on both."""
    match tree:
        case ast.ParenExpr():
            yield from compared(tree.expr)
        case ast.BinaryExpr() if str(tree.op) in {*COMPARISON, *SETS}:
            yield from compared(tree.lhs)
            yield from compared(tree.rhs)
        case ast.NumberLiteral():
            return
        case _:
            yield tree.prettify()


RULES = [
    part
    for file in sorted(PACK.glob("*.yml"))
    for group in yaml.safe_load(file.read_text()).get("groups", ())
    for rule in group["rules"]
    for part in compared(ast.parse(rule["expr"]))
]
READINGS = [readings._QUERY, pool_means.RESIDENCE_QUERY, pool_means.CONTEXT_QUERY, *cordoning._DRAWN]
# Of the documentation: lines of PromQL, and expressions of rules in YAML or JSON.
_PRINTED = re.compile(r'^```promql\n(.*?)^```|^\s*expr: (.+?)$|"expr": "([^"]+)"', re.MULTILINE | re.DOTALL)
PRINTED = [
    line
    for page in sorted(DOCUMENTATION.glob("*.md"))
    for block in _PRINTED.findall(page.read_text())
    for line in "".join(block).splitlines()
    if not line.startswith("#")
]
OWN_QUERIES = list(dict.fromkeys([*PAGES, *RECORDED, *RULES, *READINGS, *PRINTED]))

BOUNDS = ("0.05", "0.25", "1", "2.5", "10", "+Inf")
ENGINES = {"e-1": ("n-1", "short"), "e-2": ("n-1", "long"), "e-3": ("n-2", "long")}
LATENCIES = ("queue_seconds", "ttft_seconds", "tpot_seconds", "e2e_seconds")
# From here on e-3 and gw-2 say nothing more: the engine was removed, which is said, and the gateway killed.
GONE = 120


def fleet(begin_ms: int) -> list[Series]:
    """Two gateways, three engines on two nodes with two GPUs each, and recorded series; counters begin anew."""
    dice = random.Random(11)
    times = [begin_ms + JITTER_MS + place * STEP_MS + dice.randrange(100) for place in range(COUNT)]
    found = []

    def add(name: str, labels: dict[str, str], values: list[float]) -> None:
        found.append(Series({"__name__": name, **labels}, list(zip(times, values, strict=False))))

    def growing(step: int, count: int = COUNT) -> list[float]:
        total, column = dice.randrange(10**6, 10**7), []
        for _ in range(count):
            total = 10**6 if dice.random() < 0.01 else total + dice.randrange(step)
            column.append(float(total))
        return column

    def histogram(name: str, labels: dict[str, str], count: int = COUNT) -> None:
        running = [0.0] * count
        for bound in BOUNDS:
            running = [sum(pair) for pair in zip(running, growing(40, count), strict=True)]
            add(f"{name}_bucket", {**labels, "le": bound}, running)
        add(f"{name}_count", labels, running)
        add(f"{name}_sum", labels, growing(90, count))

    for rule in RECORDING_RULES:
        (names,) = re.findall(r"^.*? by \((.+?)\)", rule["expr"])
        for owner in ("one", "other"):
            labels = {name: "ok" if name == "outcome" else owner for name in names.split(", ") if name != "le"}
            labels |= rule.get("labels", {})
            add(rule["record"], labels, [round(dice.uniform(0, 1), 4) for _ in range(COUNT)])
    finding = {"detector": "kv_exhausted", "subject": "pool/short"}
    add("headworks_diagnosis_confidence_ratio", finding, [0.9] * COUNT)
    for gateway, count in (("gw-1", COUNT), ("gw-2", GONE)):
        add("headworks_gateway_config_revision", {"gateway": gateway}, [7.0] * count)
        add("headworks_gateway_ledger", {"gateway": gateway, "mode": "local"}, [1.0] * count)
        failed = {"gateway": gateway, "model": "m", "reason": "timeout"}
        add("headworks_gateway_cache_embedding_failures_total", failed, growing(9, count))
        for tenant, pool in (("acme", "short"), ("acme", "long"), ("beta", "long")):
            whose = {"gateway": gateway, "tenant": tenant, "pool": pool, "priority_class": "normal"}
            for kind in ("prompt", "generation"):
                add(f"headworks_gateway_{kind}_tokens_total", whose, growing(5000, count))
            for outcome, reason in (("ok", "none"), ("refused", "tpm_limit")):
                ended = {**whose, "outcome": outcome, "reason": reason}
                add("headworks_gateway_requests_total", ended, growing(9, count))
            add("headworks_gateway_slo_requests_total", {**whose, "outcome": "met"}, growing(9, count))
            add("headworks_gateway_requests_without_max_tokens_total", whose, growing(5, count))
            kept = {"gateway": gateway, "pool": pool, "slo": "ttft" if tenant == "acme" else "tpot", "outcome": "met"}
            add("headworks_gateway_slo_promises_total", kept, growing(9, count))
            for cache, what in itertools.product(("exact", "semantic"), ("lookups", "hits", "wrong_hits")):
                add(f"headworks_gateway_cache_{what}_total", {**whose, "cache": cache}, growing(9, count))
            for name in LATENCIES:
                histogram(f"headworks_gateway_{name}", whose, count)
    for engine, (node, pool) in ENGINES.items():
        whose = {"node": node, "engine": engine, "pool": pool, "kind": "vllm", "model": "m"}
        ends = [STALE] if engine == "e-3" else []
        count = GONE if ends else COUNT
        add("headworks_engine_up", whose, [1.0] * count + ends)
        for name in ("requests_running", "requests_waiting"):
            add(f"headworks_engine_{name}", whose, [float(dice.randrange(9)) for _ in range(count)] + ends)
        usage = [round(dice.uniform(0.9, 1), 3) for _ in range(count)]
        add("headworks_engine_kv_cache_usage_ratio", whose, usage + ends)
        add("headworks_engine_preemptions_total", whose, growing(9, count) + ends)
        for name in ("queue_seconds", "e2e_seconds"):
            histogram(f"headworks_engine_{name}", whose, count)
    for node, count in (("n-1", COUNT), ("n-2", GONE)):
        add("headworks_agent_up", {"node": node}, [1.0] * count)
        for gpu in ("0", "1"):
            own = {"node": node, "gpu": gpu, "UUID": f"GPU-{node}-{gpu}"}
            add("headworks_gpu_up", own, [1.0] * count)
            for name, most in (("GPU_UTIL", 100), ("POWER_USAGE", 700), ("GPU_TEMP", 90), ("FB_USED", 140_000)):
                add(f"DCGM_FI_DEV_{name}", own, [round(dice.uniform(0, most), 2) for _ in range(count)])
    known = {key_of(series.labels) for series in found}
    for each in HEALTHY:
        labels = labels_of(each["series"])
        if key_of(labels) not in known:
            # Counters start high.
            base = 10**6 if "+" in each["values"] else 0
            values = [base + value for value in values_of(each["values"])[:COUNT] if value is not None]
            found.append(Series(labels, list(zip(times, values, strict=True))))
    return found


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with running_twins(tmp_path_factory.mktemp("twins"), fleet) as both:
        yield both


@pytest.mark.parametrize("query", OWN_QUERIES)
def test_a_query_of_our_own_gives_what_prometheus_gives(twins, query):
    compare(twins, query)
    asked = {"query": query, "start": twins.begin_ms / 1000, "end": twins.end_ms / 1000, "step": 15}
    assert twins.theirs("query_range", **asked)["data"]["result"], "nothing was compared"


def test_every_source_of_queries_is_asked():
    assert all((PAGES, RECORDED, RULES, READINGS, PRINTED))
