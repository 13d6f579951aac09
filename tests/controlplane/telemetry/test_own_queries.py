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
from controlplane.web import effects, readings
from controlplane.web.forms.stage import failures_expression
from controlplane.web.shown import agent_sessions, breakers, caches, classes, pool_readings, pools, topology
from controlplane.web.views import routes
from dashboards.charts import CHARTS
from dashboards.heat import MEASURES, promql_of
from dashboards.spans import SPANS
from tests.controlplane.telemetry.twins import COUNT, JITTER_MS, STEP_MS, Twins, compare, running_twins
from wire.write_body import STALE, Series, key_of

DOCUMENTATION = Path(__file__).parents[3] / "docs"
PAGES = [
    promql for chart in CHARTS for query in chart.queries for span in SPANS.values() if (promql := query.over(span))
]
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
READINGS = [
    readings._QUERY, pool_means.RESIDENCE_QUERY, pool_means.CONTEXT_QUERY, *cordoning._DRAWN,
    breakers.closed_query("engine", ["e-1"]), breakers.failures_query(["short", "long"]),
    failures_expression(["gateway/gw-1"], 999), *(question.promql for question in routes.LATELY.values()),
]  # fmt: skip
# Of pages of pools, classes, caches and sessions, and of what a review says.
_ASKED = [
    *(page.board.questions for page in (pools, pool_readings, classes, caches, agent_sessions)),
    pools.usage_questions("short"),
    topology.questions("n-1"),
]
SCREENS = [question.promql for asked in _ASKED for question in asked.values()]
SCREENS += [promql for measure in MEASURES for span in SPANS.values() if (promql := promql_of(measure, span, ()))]
SCREENS.append(effects.requests_query(["short", "long"]))
# Of the documentation: lines of PromQL, and expressions of rules in YAML or JSON.
_PRINTED = re.compile(r'^```promql\n(.*?)^```|^\s*expr: (.+?)$|"expr": "([^"]+)"', re.MULTILINE | re.DOTALL)
PRINTED = [
    line
    for page in sorted(DOCUMENTATION.glob("*.md"))
    for block in _PRINTED.findall(page.read_text())
    for line in "".join(block).splitlines()
    if not line.startswith("#")
]
OWN_QUERIES = list(dict.fromkeys([*PAGES, *RECORDED, *RULES, *READINGS, *SCREENS, *PRINTED]))

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

    def add_pool(whose: dict[str, str], count: int) -> None:
        """What a gateway says of one pool, and of an engine of it."""
        for name in ("queue_length", "queue_tokens", "pool_requests", "concurrency_limit", "kv_reserved_tokens",
                     "kv_others_tokens"):  # fmt: skip
            add(f"headworks_gateway_{name}", whose, [float(dice.randrange(900)) for _ in range(count)])
        engine = {**whose, "engine": "e-1"}
        for state, holds in (("open", 1.0), ("closed", 0.0)):
            add("headworks_gateway_breaker_state", {**engine, "state": state}, [holds] * count)
        add("headworks_gateway_streams_cut_total", {**engine, "reason": "engine_error"}, growing(3, count))

    def add_sessions(whose: dict[str, str], count: int) -> None:
        """What a gateway says of a tenant's sessions."""
        for name in ("sessions", "repeated_tool_calls"):
            add(f"headworks_gateway_{name}_total", whose, growing(9, count))
        for name in ("near_limit", "closed"):
            add(f"headworks_gateway_sessions_{name}_total", {**whose, "reason": "session_tokens"}, growing(9, count))
        for name in ("calls", "tokens"):
            add(f"headworks_gateway_session_{name}_highest", whose, [float(dice.randrange(900)) for _ in range(count)])

    for outcome, reason in (("refused", "tpm_limit"), ("refused", "queue_timeout"), ("cancelled", "client_left")):
        labels = {"pool": "one", "outcome": outcome, "reason": reason}
        add("pool:headworks_gateway_requests:rate1m", labels, [0.5] * COUNT)
    for outcome, level in (("met", 8.0), ("missed", 0.5)):
        labels = {"pool": "one", "slo": "goodput", "outcome": outcome}
        add("pool:headworks_gateway_slo:rate1m", labels, [level] * COUNT)
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
            add("headworks_gateway_slo_requests_total", {**whose, "outcome": "missed"}, growing(3, count))
            for outcome, reason in (
                ("refused", "queue_timeout"),
                ("refused", "shed"),
                ("refused", "session_iterations"),
                ("cancelled", "client_left"),
            ):
                ended = {**whose, "outcome": outcome, "reason": reason}
                add("headworks_gateway_requests_total", ended, growing(9, count))
            for name in LATENCIES:
                histogram(f"headworks_gateway_{name}", whose, count)
        add_sessions({"gateway": gateway, "tenant": "acme"}, count)
        for name, labels in (("cache_bytes", {}), ("cache_answers", {"cache": "exact"})):
            add(f"headworks_gateway_{name}", {"gateway": gateway, **labels}, [900.0] * count)
        used = [round(dice.uniform(0, 1), 3) for _ in range(count)]
        add("headworks_gateway_daily_budget_used_ratio", {"gateway": gateway, "tenant": "acme"}, used)
        for pool in ("short", "long"):
            add_pool({"gateway": gateway, "pool": pool}, count)
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
        for name in ("queue_seconds", "e2e_seconds", "inter_token_latency_seconds"):
            histogram(f"headworks_engine_{name}", whose, count)
        for name in ("prompt_tokens", "generation_tokens", "prefix_cache_queries_tokens", "prefix_cache_hits_tokens"):
            add(f"headworks_engine_{name}_total", whose, growing(5000, count))
        add("headworks_engine_requests_finished_total", {**whose, "reason": "stop"}, growing(9, count))
        for name in ("iteration_tokens_total", "request_prefill_time_seconds", "request_decode_time_seconds"):
            for part in ("sum", "count"):
                add(f"vllm:{name}_{part}", whose, growing(9, count))
        for name in ("count", "exec_count", "compute_infer_duration_us"):
            add(f"nv_inference_{name}", whose, growing(9, count))
    for node, count in (("n-1", COUNT), ("n-2", GONE)):
        add("headworks_agent_up", {"node": node}, [1.0] * count)
        for gpu in ("0", "1"):
            own = {"node": node, "gpu": gpu, "UUID": f"GPU-{node}-{gpu}"}
            add("headworks_gpu_up", own, [1.0] * count)
            for name, most in (
                ("DEV_GPU_UTIL", 100),
                ("DEV_POWER_USAGE", 700),
                ("DEV_GPU_TEMP", 90),
                ("DEV_FB_USED", 140_000),
                ("DEV_FB_TOTAL", 143_771),
                ("DEV_SM_CLOCK", 1_980),
                ("PROF_PCIE_TX_BYTES", 1e9),
                ("PROF_PCIE_RX_BYTES", 1e9),
            ):
                add(f"DCGM_FI_{name}", own, [round(dice.uniform(0, most), 2) for _ in range(count)])
            for name in ("headworks_gpu_xid_errors_total", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
                         "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"):  # fmt: skip
                add(name, own, growing(3, count))
            for direction in ("tx", "rx"):
                add("headworks_gpu_nvlink_bytes_total", {**own, "direction": direction}, growing(9_000, count))
            add("headworks_gpu_clock_event_active", {**own, "reason": "sw_power_cap"}, [1.0] * count)
            add("headworks_gpu_topology_info", {**own, "peer": "9", "link": "NV18"}, [1.0] * count)
            add("headworks_gpu_nvlink_up", {**own, "link": "0"}, [1.0] * count)
            add("headworks_gpu_numa_node", own, [0.0] * count)
            add("headworks_gpu_processes", {**own, "engine": "e-1"}, [1.0] * count)
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
    assert all((PAGES, RECORDED, RULES, READINGS, SCREENS, PRINTED))
