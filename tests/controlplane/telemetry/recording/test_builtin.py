"""The built-in rules against a store that holds what a fleet pushes."""

from __future__ import annotations

import subprocess
from typing import Any

from controlplane.telemetry import query
from controlplane.telemetry.recording.builtin import builtin
from controlplane.telemetry.recording.fields import checked
from controlplane.telemetry.recording.rule_text import write_rules
from tests.controlplane.telemetry.filling import named
from tests.services import service_binary
from wire.write_body import Series

_LATENCIES = ("queue_seconds", "ttft_seconds", "tpot_seconds", "e2e_seconds")
_ENGINE = ("up", "requests_waiting", "requests_running", "kv_cache_usage_ratio")
# What a level is told apart by, where it is not the label of its name.
_LABELS = {"tenant_pool": {"tenant", "pool"}, "engine": {"node", "pool", "engine"}}
_GPU = (
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_SM_CLOCK", "headworks_gpu_xid_errors_total", "headworks_gpu_up",
)  # fmt: skip
_ENGINE_COUNTERS = (
    "prompt_tokens_total", "generation_tokens_total", "preemptions_total", "prefix_cache_queries_tokens_total",
    "prefix_cache_hits_tokens_total",
)  # fmt: skip


def _rules() -> list[dict[str, Any]]:
    return [rule for group in builtin()["groups"] for rule in group["rules"]]


def _pushed(now_ms: int) -> list[Series]:
    """Five minutes of two engines on one node, and of a gateway."""
    times = range(now_ms - 300_000, now_ms, 15_000)

    def counter(name: str, **labels: str) -> Series:
        return named(f"headworks_gateway_{name}", [(at, float(at - now_ms + 300_000)) for at in times], **labels)

    def engine_counter(name: str) -> Series:
        return named(f"headworks_engine_{name}", [(at, float(at)) for at in times], pool="short")

    def gauge(name: str, value: float, **labels: str) -> Series:
        return named(name, [(at, value) for at in times], **labels)

    whose = {"pool": "short", "tenant": "acme", "priority_class": "normal"}
    return [
        counter("requests_total", **whose, outcome="ok", reason="none"),
        counter("slo_requests_total", **whose, outcome="met"),
        counter("slo_promises_total", pool="short", slo="ttft", outcome="met"),
        counter("prompt_tokens_total", **whose),
        counter("generation_tokens_total", **whose),
        *(counter(f"{name}_bucket", **whose, le=le) for name in _LATENCIES for le in ("0.5", "+Inf")),
        *(gauge(f"headworks_gateway_queue_{name}", 3, pool="short") for name in ("length", "tokens")),
        *(engine_counter(f"{name}_seconds_{part}") for name in ("queue", "e2e") for part in ("sum", "count")),
        *(engine_counter(name) for name in _ENGINE_COUNTERS),
        *(gauge(f"headworks_engine_{name}", 1, pool="short", engine=e) for name in _ENGINE for e in ("e1", "e2")),
        *(gauge(name, 40, gpu=gpu) for name in _GPU for gpu in ("0", "1")),
    ]


def test_they_pass_the_checks_that_those_of_people_pass():
    assert checked(builtin()) == builtin()


def test_promtool_takes_them(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(write_rules(builtin()))
    argv: list[Any] = [service_binary("promtool"), "check", "rules", file]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(_rules())} rules found" in done.stdout


def test_each_gives_a_series_of_its_level(fill, now_ms):
    fill(_pushed(now_ms))
    for rule in _rules():
        level = rule["record"].split(":")[0]
        by = _LABELS.get(level, {level}) | ({"outcome", "reason"} if "_requests:rate" in rule["record"] else set())
        by |= {"slo", "outcome"} if "_slo:rate" in rule["record"] else set()
        found = query.instant(rule["expr"], now_ms)
        assert {frozenset(sample.labels | rule.get("labels", {})) for sample in found} == {frozenset(by)}, rule
        assert len(found) == (2 if level == "engine" else 1), rule


def test_what_is_added_up_and_what_is_a_mean(fill, now_ms):
    fill(_pushed(now_ms))
    value = {rule["record"]: query.instant(rule["expr"], now_ms)[0].value for rule in _rules()}
    assert value["node:DCGM_FI_DEV_GPU_UTIL:avg"] == 40
    assert value["node:DCGM_FI_DEV_POWER_USAGE:sum"] == 80
    assert value["pool:headworks_engine_up:sum"] == 2
    assert value["pool:headworks_engine_kv_cache_usage_ratio:max"] == 1
    assert value["pool:headworks_gateway_requests:rate1m"] == 1000
    assert value["tenant_pool:headworks_gateway_tokens:rate1m"] == 2000
