"""What the planner's form begins with when it is opened from a pool: its model, its GPUs and how its engines run."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from controlplane.configs.models import PoolMeans
from controlplane.fleet.models import Engine, Pool
from controlplane.web.forms.plan import FLEET, MEASURED, PASTED, TYPED
from policy.planning.known import KNOWN
from wire.canonical import Document
from wire.engine_arguments import value_of, whole_of


def initial_of(pool: Pool, fleet: Sequence[Document]) -> dict[str, Any]:
    """Values by field of the form; one that is not there keeps its own. `fleet`: as `fleet_gpus.describe` has it."""
    engines = list(Engine.objects.filter(pool=pool).select_related("node").order_by("name"))
    arguments = _Arguments(pool, engines)
    measured = PoolMeans.objects.filter(pool=pool.name, context_tokens__isnull=False).exists()
    found = {
        "model": known_model([pool.model.name, *(engine.served_model for engine in engines)]),
        "weights": _weights(arguments.text("quantization")),
        "kv_cache_dtype": "fp8" if (arguments.text("kv-cache-dtype") or "").startswith("fp8") else "bf16",
        "context_tokens": arguments.whole("max-model-len") or pool.model.max_context_tokens,
        "gpus": _gpus({engine.node.name for engine in engines if engine.node is not None}, fleet),
        "utilisation_permille": _permille(arguments.text("gpu-memory-utilization")),
        "tensor_parallel": arguments.whole("tensor-parallel-size"),
        "pipeline_parallel": arguments.whole("pipeline-parallel-size"),
        "lengths": MEASURED if measured else TYPED,
        "measured_pool": pool.name if measured else "",
        "rates": pool.name if measured else "",
        "tpot_slo_ms": pool.tpot_slo_ms,
        "compare_model": pool.model.name,
    }
    return {name: value for name, value in found.items() if value is not None}


def known_model(names: Sequence[str]) -> str:
    """The planner's model that one of these names begins with, the longest; with or without its maker's name.

    PASTED where there is none: `meta-llama/Llama-3.1-8B-Instruct` and `llama-3.1-8b` are known, `chat` is not.
    """
    known = sorted(KNOWN, key=len, reverse=True)
    for name in names:
        bare = name.rpartition("/")[2].lower()
        for model in known:
            base = model.rpartition("/")[2].lower()
            if bare == base or bare.startswith(f"{base}-"):
                return model
    return PASTED


class _Arguments:
    """Of the engine that tells how it was started and, what that does not say, as the pool wants it."""

    def __init__(self, pool: Pool, engines: Sequence[Engine]) -> None:
        told: dict[str, Any] = next((row.facts["arguments"] for row in engines if row.facts.get("arguments")), {})
        self._sources = [{name: str(value) for name, value in each.items()} for each in (told, pool.engine_arguments)]

    def text(self, name: str) -> str | None:
        return next((value for each in self._sources if (value := value_of(name, each)) is not None), None)

    def whole(self, name: str) -> int | None:
        return next((value for each in self._sources if (value := whole_of(name, each)) is not None), None)


def _weights(quantization: str | None) -> str | None:
    """vLLM's name of it in the planner's words; None: as the model's file has them."""
    beginnings = {"fp8": "fp8", "awq": "int4", "gptq": "int4", "mxfp4": "mxfp4"}
    return next((word for begin, word in beginnings.items() if (quantization or "").startswith(begin)), None)


def _gpus(nodes: set[str], fleet: Sequence[Document]) -> str | None:
    """The choice that stands for the first of the fleet's groups that one of these nodes is of."""
    return next((f"{FLEET}{group['nodes'][0]}" for group in fleet if nodes & set(group["nodes"])), None)


def _permille(share: str | None) -> int | None:
    try:
        permille = round(Decimal(share or "") * 1000)
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return permille if 0 < permille <= 1000 else None
