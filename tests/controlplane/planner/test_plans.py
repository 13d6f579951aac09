"""Plans by REST: typed, taken from the fleet, compared with engines; and every bad input refused by its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.fields import epoch_ms
from controlplane.core.models import Role
from controlplane.fleet.models import Engine, Gpu, Node
from controlplane.planner import fleet_gpus
from controlplane.telemetry import query
from controlplane.telemetry.decisions import sketches
from controlplane.telemetry.results import Sample
from tests.controlplane.conftest import Rest
from wire.sketches import MINUTE_MS, Sketch, bucket_of

LLAMA = "meta-llama/Llama-3.3-70B"
TYPED = {"prompt": {"p50": 1500, "p95": 8000}, "output": {"mean": 300, "p95": 900}}
PLAN = {
    "model": {"known": LLAMA}, "gpus": {"known": "H100-SXM", "per_node": 8}, "weights": "fp8", "lengths": TYPED,
    "context_tokens": 32_768,
}  # fmt: skip
H100_BYTES = 81_559 * 2**20


def made(rest: Rest, **change: Any) -> Any:
    answer = rest.post("/plans", {**PLAN, **change})
    assert answer.status_code == 200, answer.content
    return answer.json()


def refused(rest: Rest, path: str = "/plans", **change: Any) -> set[tuple[str, str]]:
    answer = rest.post(path, {**PLAN, **change} if path == "/plans" else change)
    assert answer.status_code == 422, answer.content
    assert answer.json()["detail"]
    return {(each["path"], each["rule"]) for each in answer.json()["problems"]}


def test_a_plan_says_what_fits_and_how_to_start(viewer: Rest) -> None:
    plan = made(viewer)
    assert (plan["fits"], plan["remedies"], plan["closest"]) == (True, [], None)
    assert plan["model"]["parameters"] == 70_553_706_496
    chosen = plan["chosen"]
    assert (chosen["kind"], chosen["tensor_parallel"], chosen["replicas"]) == ("tensor_parallel", 2, 4)
    assert chosen["weights_bytes"] + chosen["allowance_bytes"] + chosen["kv_budget_bytes"] == chosen["usable_bytes"]
    assert chosen["tokens_of_all"] == 4 * chosen["tokens"]
    assert [step["answer"] for step in plan["tree"]] == ["no", "yes", "yes"]
    start = plan["start"]
    assert start["sequences"]["worst_case"] <= start["max_num_seqs"]["value"] <= start["sequences"]["on_average"]
    assert start["max_num_batched_tokens"]["value"] == 8192
    assert start["rates"]["from"] == "estimated"
    assert [wait["load_permille"] for wait in start["waits"]] == [500, 600, 700, 800, 850, 900, 950, 990]
    assert start["waits"][-1]["service_times"] == pytest.approx(99)
    assert plan["engines"] == []


def test_a_plan_that_does_not_fit_says_by_how_much_and_what_would(viewer: Rest) -> None:
    plan = made(viewer, gpus={"known": "H100-SXM"}, weights="bf16")
    assert (plan["fits"], plan["chosen"], plan["start"]) == (False, None, None)
    assert plan["closest"]["missing_bytes"] > 70e9
    assert {remedy["change"]: remedy["value"] for remedy in plan["remedies"]} == {"weights": "int4", "gpus": "4"}


def test_a_config_is_planned_with_as_it_is_pasted(viewer: Rest) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14_336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
        "max_position_embeddings": 131_072, "rms_norm_eps": 1e-05, "rope_theta": 500_000.0, "torch_dtype": "bfloat16",
        "eos_token_id": [128_001, 128_008], "rope_scaling": None,
    }  # fmt: skip
    plan = made(viewer, model={"config": config}, weights=None)
    assert (plan["model"]["parameters"], plan["serving"]["weights"]) == (8_030_261_248, "bf16")
    del config["num_key_value_heads"]
    config["hidden_size"] = -4096
    assert refused(viewer, model={"config": config}) == {
        ("/model/config/num_key_value_heads", "required"), ("/model/config/hidden_size", "range"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"gpus": {"known": "H100-SXM", "per_node": 0}}, ("/gpus/per_node", "greater_than_equal")),
        ({"gpus": {"known": "H100-SXM", "nodes": -1}}, ("/gpus/nodes", "greater_than_equal")),
        ({"gpus": {"memory_bytes": 0}}, ("/gpus/memory_bytes", "greater_than_equal")),
        ({"gpus": {"known": "H900"}}, ("/gpus/known", "unknown")),
        ({"gpus": {}}, ("/gpus", "one_of")),
        ({"gpus": {"fleet_node": "nobody"}}, ("/gpus/fleet_node", "reference")),
        ({"model": {"known": "org/none"}}, ("/model/known", "unknown")),
        ({"model": {}}, ("/model", "one_of")),
        ({"model": {"config": {}}}, ("/model/config/model_type", "required")),
        ({"weights": "int3"}, ("/weights", "literal_error")),
        ({"kv_cache_dtype": "fp32"}, ("/kv_cache_dtype", "literal_error")),
        ({"context_tokens": 0}, ("/context_tokens", "greater_than_equal")),
        ({"utilisation_permille": 1001}, ("/utilisation_permille", "less_than_equal")),
        ({"activation_bytes": -1}, ("/activation_bytes", "greater_than_equal")),
        ({"tensor_parallel": 3}, ("/tensor_parallel", "range")),
        ({"lengths": {}}, ("/lengths", "one_of")),
        ({"lengths": {"prompt": {"mean": 5}}}, ("/lengths", "one_of")),
        ({"lengths": {**TYPED, "output": {"mean": 100, "p95": 9000}}}, ("/lengths/output", "range")),
        ({"lengths": {**TYPED, "output": {"p50": 100, "p95": 90}}}, ("/lengths/output", "range")),
        ({"lengths": {**TYPED, "output": {"histogram": {"1e3": 4}}}}, ("/lengths/output", "one_of")),
        ({"lengths": {**TYPED, "output": {"p95": 5}}}, ("/lengths/output", "one_of")),
        ({"lengths": {**TYPED, "output": {"mean": 100, "p50": 101}}}, ("/lengths/output", "range")),
        ({"lengths": {**TYPED, "prompt": {"histogram": {"0": 1}}}}, ("/lengths/prompt/histogram/0", "range")),
        ({"lengths": {"measured": {"days": 31}}}, ("/lengths/measured/days", "less_than_equal")),
        ({"lengths": {"measured": {}}}, ("/lengths/measured", "not_measured")),
        ({"rates": {"prefill_tokens_per_second": 5.0}}, ("/rates", "one_of")),
        ({"rates": {}}, ("/rates", "one_of")),
        ({"compare_model": "org/none"}, ("/compare_model", "reference")),
        ({"gpu": 8}, ("/gpu", "unknown")),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(viewer: Rest, change: dict[str, Any], problem: tuple[str, str]) -> None:
    assert refused(viewer, **change) == {problem}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-5", "0", "5e-324", "1e400"])
def test_a_rate_is_a_number_above_0(viewer: Rest, number: str) -> None:
    rates = json.dumps({"prefill_tokens_per_second": "number", "decode_tokens_per_second": 5})
    body = json.dumps({**PLAN, "rates": "rates"}).replace('"rates": "rates"', f'"rates": {rates}')
    answer = viewer.post("/plans", body.replace('"number"', number).encode())
    assert answer.status_code == 422
    assert {each["path"] for each in answer.json()["problems"]} == {"/rates/prefill_tokens_per_second"}


def test_a_body_that_is_nested_too_deep_is_no_json(viewer: Rest) -> None:
    answer = viewer.post("/plans", b'{"model": ' + b'{"config":' * 50_000 + b"1" + b"}" * 50_001)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize("path", ["/plans", "/plans/fan-out"])
def test_every_role_may_plan_and_strangers_may_not(
    rest_of: Callable[[Role | None], Rest], outsider: Rest, path: str
) -> None:
    for role in Role:
        assert rest_of(role).post(path, {}).status_code == 422, role
        assert rest_of(role).get("/plans/gpus").status_code == 200, role
        assert rest_of(role).get("/plans/promise?tenant=nobody&tpm=1").status_code == 404, role
    assert outsider.post(path, {}).status_code == 401
    assert outsider.get("/plans/gpus").status_code == 401
    assert outsider.get("/plans/promise?tenant=nobody&tpm=1").status_code == 401


@pytest.fixture
def racks(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes of 8 linked H100, and one of 4 unlinked L40S of which one is lost."""
    for name, count, model, memory in (
        ("rack-1", 8, "NVIDIA H100 80GB HBM3", H100_BYTES),
        ("rack-2", 8, "NVIDIA H100 80GB HBM3", H100_BYTES),
        ("rack-3", 4, "NVIDIA L40S", 46_068 * 2**20),
    ):
        node = Node.objects.create(name=name)
        for index in range(count):
            lost = (name, index) == ("rack-3", 3)
            Gpu.objects.create(
                node=node, uuid=f"{name}-{index}", index=index, model=model, memory_bytes=memory,
                state="lost" if lost else "ok", reported_at=timezone.now(),
            )  # fmt: skip
    told = [("rack-1", "NV18"), ("rack-2", "NV18"), ("rack-2", "SYS")]

    def instant(promql: str, at_ms: int, seconds_max: float | None = None) -> list[Sample]:
        assert promql == fleet_gpus.LINKS_QUERY
        return [Sample({"node": node, "link": link}, at_ms, 1.0) for node, link in told]

    monkeypatch.setattr(query, "instant", instant)


def test_the_fleet_s_gpus_are_grouped_by_what_they_are_and_how_they_are_linked(racks: None, viewer: Rest) -> None:
    fleet = viewer.get("/plans/gpus").json()["fleet"]
    assert [
        (each["nodes"], each["gpu"], each["per_node"], each["link"], each["link_is_measured"]) for each in fleet
    ] == [
        (["rack-1"], "H100-SXM", 8, "nvlink", True),
        (["rack-2"], "H100-SXM", 8, "pcie", True),
        (["rack-3"], "L40S", 3, "pcie", False),
    ]


def test_a_plan_takes_a_node_s_gpus_and_their_links(racks: None, viewer: Rest) -> None:
    linked, unlinked = (made(viewer, gpus={"fleet_node": name}) for name in ("rack-1", "rack-2"))
    assert linked["machines"] == {
        "gpu": "H100-SXM", "memory_bytes": H100_BYTES, "per_node": 8, "nodes": 1, "gpus": 8, "link": "nvlink",
    }  # fmt: skip
    assert (linked["chosen"]["kind"], unlinked["chosen"]["kind"]) == ("tensor_parallel", "pipeline")
    assert made(viewer, gpus={"fleet_node": "rack-2", "link": "nvlink"})["chosen"]["kind"] == "tensor_parallel"


def test_without_metrics_a_gpu_s_usual_link_counts(racks: None, viewer: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(promql: str, at_ms: int, seconds_max: float | None = None) -> list[Sample]:
        raise query.QueryError("away")

    monkeypatch.setattr(query, "instant", away)
    fleet = viewer.get("/plans/gpus").json()["fleet"]
    assert [(each["nodes"], each["link"], each["link_is_measured"]) for each in fleet] == [
        (["rack-1", "rack-2"], "nvlink", False), (["rack-3"], "pcie", False),
    ]  # fmt: skip


@pytest.fixture
def chat(admin: Rest) -> Rest:
    """A pool of one engine that is spread over two GPUs."""
    for path, body in (
        ("/models", {"name": LLAMA, "max_context_tokens": 32_768}),
        ("/pools", {"name": "chat", "model": LLAMA}),
        ("/nodes", {"name": "rack-1"}),
        ("/engines", {
            "name": "llama-a", "url": "http://10.0.0.1:8000", "pool": "chat", "served_model": "m", "node": "rack-1",
        }),
    ):  # fmt: skip
        assert admin.post(path, body).status_code == 201
    return admin


def counted(tenant: str, prompt: int, output: int, times: int) -> None:
    minute = epoch_ms(timezone.now()) // MINUTE_MS * MINUTE_MS - 10 * MINUTE_MS
    sketch = Sketch(
        minute=minute, tenant=tenant, pool="chat", arrivals=times,
        prompt_tokens=[(bucket_of(prompt), times)], output_tokens=[(bucket_of(output), times)],
    )  # fmt: skip
    sketches.take("edge-1", [sketch], now_ms=minute)


def test_lengths_are_taken_from_what_gateways_counted_of_a_pool_or_a_tenant(chat: Rest) -> None:
    for name in ("acme", "beta"):
        assert chat.post("/tenants", {"name": name}).status_code == 201
    counted("acme", 4000, 500, 30)
    counted("beta", 200, 50, 70)
    whole = made(chat, lengths={"measured": {"pool": "chat", "days": 1}})
    assert (whole["lengths_from"], whole["requests_counted"]) == ("measured", 100)
    of_acme = made(chat, lengths={"measured": {"tenant": "acme", "days": 1}})
    assert of_acme["requests_counted"] == 30
    assert of_acme["start"]["mean_context_tokens"] == pytest.approx(4500, rel=0.07)
    assert whole["start"]["mean_context_tokens"] == pytest.approx(0.3 * 4500 + 0.7 * 250, rel=0.07)
    missing = chat.post("/plans", {**PLAN, "lengths": {"measured": {"pool": "nobody"}}})
    assert missing.status_code == 404


def told(arguments: dict[str, str], tokens: int | None) -> None:
    Engine.objects.filter(name="llama-a").update(facts={"arguments": arguments}, kv_capacity_tokens=tokens)


def test_an_estimate_stands_beside_what_the_engine_measured(chat: Rest) -> None:
    told({}, None)
    assert made(chat)["engines"] == []
    Gpu.objects.create(
        node=Node.objects.get(name="rack-1"), uuid="GPU-1", index=0, model="NVIDIA H100 80GB HBM3",
        memory_bytes=H100_BYTES, reported_at=timezone.now(),
    )  # fmt: skip
    arguments = {
        "tensor_parallel_size": "2", "model_config.max_model_len": "32768", "quantization": "fp8",
        "kv_cache_dtype": "fp8_e4m3", "gpu_memory_utilization": "0.9",
    }  # fmt: skip
    told(arguments, 400_000)
    (engine,) = made(chat)["engines"]
    # 0.9 × 85.5 GB - 36.3 - 4 GB of each GPU, at 80 KiB a token.
    estimate = (H100_BYTES * 9 // 10 - 36_329_504_768 - 4 * 10**9) // (81_920 * 16) * 16
    assert engine == {
        "engine": "llama-a", "pool": "chat", "tensor_parallel": 2, "pipeline_parallel": 1, "measured_tokens": 400_000,
        "estimated_tokens": estimate, "error_permille": round((estimate - 400_000) / 400), "assumed": [],
    }  # fmt: skip
    assert 0 < engine["error_permille"] < 200


def test_what_an_engine_does_not_tell_is_taken_from_the_plan_and_said(chat: Rest) -> None:
    told({"tensor_parallel_size": "two", "gpu_memory_utilization": "much"}, 100_000)
    (engine,) = made(chat, weights="int4")["engines"]
    assert engine["tensor_parallel"] == 1
    assert engine["assumed"] == ["gpu", "context_tokens", "weights", "kv_cache_dtype", "utilisation"]
    told({"tensor_parallel_size": "3"}, 100_000)
    (unsplittable,) = made(chat)["engines"]
    assert (unsplittable["estimated_tokens"], unsplittable["error_permille"]) == (None, None)


def test_an_engine_that_tells_nothing_is_taken_to_be_spread_as_the_plan_is(chat: Rest) -> None:
    told({}, 200_000)
    plan = made(chat)
    (engine,) = plan["engines"]
    assert (engine["tensor_parallel"], engine["estimated_tokens"]) == (2, plan["chosen"]["tokens"])
    assert "sharding" in engine["assumed"]


def test_rates_are_measured_by_the_busiest_minute_of_a_pool(chat: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    told({"tensor_parallel_size": "2"}, 400_000)

    def instant(promql: str, at_ms: int, seconds_max: float | None = None) -> list[Sample]:
        assert 'pool="chat"' in promql
        assert "[3d]" in promql
        return [Sample({"pool": "chat"}, at_ms, 9000.0 if "prompt" in promql else 1200.0)]

    monkeypatch.setattr(query, "instant", instant)
    plan = made(chat, rates={"pool": "chat", "days": 3})
    assert plan["start"]["rates"] == {
        "from": "measured", "prefill_tokens_per_second": 9000.0, "decode_tokens_per_second": 1200.0,
    }  # fmt: skip
    # The same load as it was measured with takes the two GPUs that it was measured on.
    call = {"name": "chat", "prompt_tokens": 900, "output_tokens": 120, "model": "llm"}
    flow = {"users": 3600, "requests_per_user_per_hour": 10, "load_permille": 1000, "calls": [call]}
    planned = chat.post("/plans/fan-out", {**flow, "rates": {"llm": {"pool": "chat", "days": 3}}}).json()
    assert planned["models"][0]["gpus"] == 2


def test_a_pool_that_writes_nothing_read_all_of_the_time(chat: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    told({"tensor_parallel_size": "2"}, 400_000)
    monkeypatch.setattr(
        query, "instant", lambda promql, at_ms: [Sample({}, at_ms, 9000.0)] if "prompt" in promql else []
    )
    call = {"name": "embed", "prompt_tokens": 90, "model": "e"}
    flow = {"users": 100, "requests_per_user_per_hour": 10, "calls": [call], "rates": {"e": {"pool": "chat"}}}
    rates = chat.post("/plans/fan-out", flow).json()["rates"]["e"]
    assert (rates["prefill_tokens_per_second"], rates["decode_tokens_per_second"]) == (4500.0, None)


def test_a_pool_that_served_nothing_has_no_rates(chat: Rest, settings: Any, tmp_path: Path) -> None:
    assert refused(chat, rates={"pool": "chat"}) == {("/rates", "not_measured")}
    assert chat.post("/plans", {**PLAN, "rates": {"pool": "nobody"}}).status_code == 404


FAN_OUT = {
    "users": 1000, "requests_per_user_per_hour": 3.6, "peak_permille": 2000,
    "calls": [
        {"name": "rewrite", "prompt_tokens": 300, "output_tokens": 60, "model": "llm"},
        {"name": "embed", "prompt_tokens": 60, "model": "embedder"},
        {"name": "generate", "prompt_tokens": 4000, "output_tokens": 400, "cached_permille": 500, "model": "llm"},
        {"name": "agent steps", "calls_permille": 2500, "prompt_tokens": 6000, "output_tokens": 200, "model": "llm"},
    ],
    "rates": {"llm": {"prefill_tokens_per_second": 8000, "decode_tokens_per_second": 1500}},
}  # fmt: skip


def test_users_become_calls_tokens_and_gpus(viewer: Rest) -> None:
    answer = viewer.post("/plans/fan-out", FAN_OUT)
    assert answer.status_code == 200, answer.content
    made = answer.json()
    assert (made["requests_per_second"], made["calls_per_request"]) == (2.0, 5.5)
    llm, embedder = made["models"]
    assert llm["prefill_tokens_per_second"] == 2 * (300 + 2000 + 15_000)
    assert llm["decode_tokens_per_second"] == 2 * (60 + 400 + 500)
    assert llm["gpus"] == 8  # (34,600 ÷ 8,000 + 1,920 ÷ 1,500) ÷ 0.8 = 7.01
    assert (embedder["gpus"], embedder["prefill_tokens_per_second"]) == (None, 120)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"users": 0}, ("/users", "greater_than_equal")),
        ({"users": -5}, ("/users", "greater_than_equal")),
        ({"calls": []}, ("/calls", "too_short")),
        ({"requests_per_user_per_hour": 0}, ("/requests_per_user_per_hour", "greater_than_equal")),
        ({"calls": [{"name": "a", "prompt_tokens": -1}]}, ("/calls/0/prompt_tokens", "greater_than_equal")),
        ({"rates": {"nobody": FAN_OUT["rates"]["llm"]}}, ("/rates/nobody", "unknown")),  # type: ignore[index]
        ({"rates": {"llm": {"prefill_tokens_per_second": 5}}}, ("/rates/llm/decode_tokens_per_second", "required")),
        ({"rates": {"llm": {"decode_tokens_per_second": 5}}}, ("/rates/llm", "one_of")),
        ({"rates": {"llm": {"prefill_tokens_per_second": 5, "pool": "chat"}}}, ("/rates/llm", "one_of")),
    ],
)
def test_a_fan_out_that_cannot_be_is_refused_by_its_name(
    viewer: Rest, change: dict[str, Any], problem: tuple[str, str]
) -> None:
    assert refused(viewer, "/plans/fan-out", **{**FAN_OUT, **change}) == {problem}


def test_what_writes_nothing_needs_no_rate_of_writing(viewer: Rest) -> None:
    rates = {**FAN_OUT["rates"], "embedder": {"prefill_tokens_per_second": 60}}  # type: ignore[dict-item]
    made = viewer.post("/plans/fan-out", {**FAN_OUT, "rates": rates}).json()
    assert made["rates"]["embedder"] == {
        "from": "typed", "prefill_tokens_per_second": 60.0, "decode_tokens_per_second": None,
    }  # fmt: skip
    # 120 ÷ 60 ÷ 0.8 = 2.5.
    assert (made["models"][1]["decode_gpus"], made["models"][1]["gpus"]) == (0.0, 3)
