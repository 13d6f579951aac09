"""Everything an operator would set up by hand, over the same REST calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from controlplane.demo import plan
from controlplane.demo.fleet import Fleet, write_secret
from controlplane.rest_client import Rest


def configure(fleet: Fleet, model_files: Mapping[str, Path]) -> None:
    """Models, nodes, pools, engines, routes, tenants; then who is told of what. Raises RestError.

    `model_files`: the artifacts of the model, by kind.
    """
    rest = fleet.rest
    _serving(fleet, rest, model_files)
    for name, limits in plan.TENANTS.items():
        rest.post("/tenants", {"name": name, **limits})
        fleet.keys[name] = rest.post(f"/tenants/{name}/keys", {"label": "demo"})["secret"]
    _alerting(fleet, rest)


def receiver_secret(fleet: Fleet) -> Path:
    return fleet.directory / "receiver-secret"


def _serving(fleet: Fleet, rest: Rest, model_files: Mapping[str, Path]) -> None:
    artifacts = {
        kind: rest.call("POST", "/artifacts", file.read_bytes(), kind=kind, name=f"sim-llama {file.name}")
        for kind, file in model_files.items()
    }
    rest.post(
        "/models",
        {
            "name": plan.MODEL,
            **{kind: artifact["item"]["sha256"] for kind, artifact in artifacts.items()},
            "max_context_tokens": plan.MAX_CONTEXT_TOKENS,
            "default_max_tokens": 512,
            "max_tokens": 4096,
            "kv_bytes_per_token": 131_072,
        },
    )
    rest.post("/priority-classes", {"name": "interactive", "rank": 0, "ageing_ms": 2000})
    rest.post("/priority-classes", {"name": "batch", "rank": 10, "ageing_ms": 2000})
    for node in plan.NODES:
        rest.post("/nodes", {"name": node})
    for pool, work in plan.POOLS.items():
        slo = {"ttft_slo_ms": plan.TTFT_SLO_MS, "tpot_slo_ms": 50}
        rest.post("/pools", {"name": pool, "model": plan.MODEL, "work": work, **slo})
    for name, (pool, node) in plan.ENGINES.items():
        at = {"node": node, "url": fleet.engine_address(name), "served_model": plan.MODEL}
        rest.post("/engines", {"name": name, "pool": pool, "kind": "vllm", **at})
    rest.post(
        "/routes",
        {
            "name": "long-prompts",
            "order": 10,
            "match": {"min_prompt_tokens": plan.LONG_PROMPT_TOKENS},
            "pools": {"long": 1000},
        },
    )
    rest.post(
        "/routes",
        {"name": "everything-else", "order": 100, "match": {}, "pools": {"short": 1000}, "fallbacks": {"long": 1}},
    )


def _alerting(fleet: Fleet, rest: Rest) -> None:
    made = rest.post("/receivers", {"name": plan.RECEIVER, "url": f"{fleet.receiver_address}/webhook"})
    write_secret(receiver_secret(fleet), made["secret"])
    rest.patch("/cordon-policy", {"enabled": True})
