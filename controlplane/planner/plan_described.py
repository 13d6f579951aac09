"""Plans as documents: what REST answers, what the command prints as JSON, what the page is made from."""

from __future__ import annotations

import math

from policy.planning.fan_out import Demand, FanOut
from policy.planning.fit import Fit
from policy.planning.gpus import Gpu, Machines
from policy.planning.parallel import Option
from policy.planning.plan import Ask, Plan, Start
from policy.planning.shapes import ModelShape
from policy.planning.speed import Rates
from policy.planning.start import Value
from wire.canonical import Document


def described(ask: Ask, plan: Plan) -> Document:
    """`fits`: whether there is a `chosen` way; else `closest` says what is missing and `remedies` what would do."""
    return {
        "fits": plan.chosen is not None,
        "model": shape_described(ask.shape),
        "machines": machines_described(ask.machines),
        "serving": {
            "weights": ask.weights,
            "kv_cache_dtype": ask.kv_dtype,
            "context_tokens": ask.context_tokens,
            "utilisation_permille": ask.utilisation_permille,
            "activation_bytes": plan.serving.allowance.activations,
            "graph_bytes": plan.serving.allowance.graphs,
            "weights_bytes": plan.total_weights_bytes,
        },
        "tree": [step._asdict() for step in plan.choice.steps],
        "chosen": None if plan.chosen is None else _option(plan.chosen),
        "closest": None if plan.chosen is not None else _fit(plan.choice.closest),
        "remedies": [remedy._asdict() for remedy in plan.remedies],
        "options": [_option(option) for option in plan.options],
        "start": None if plan.start is None else _start(plan.start),
    }


def shape_described(shape: ModelShape) -> Document:
    return {
        "model_type": shape.model_type,
        "parameters": shape.parameters,
        "active_parameters": shape.active_parameters,
        "layers": len(shape.layers),
        "kv_heads": shape.kv_heads,
        "experts": shape.experts or None,
        "experts_per_token": shape.experts_per_token or None,
        "max_context_tokens": shape.max_context_tokens,
        "stored": shape.stored,
        "kv_layers": [{"kind": type(group).__name__, **group._asdict()} for group in shape.kv],
    }


def gpu_described(gpu: Gpu) -> Document:
    return {**gpu._asdict(), "nvml_names": list(gpu.nvml_names)}


def machines_described(machines: Machines) -> Document:
    return {
        "gpu": machines.gpu.name,
        "memory_bytes": machines.gpu.memory_bytes,
        "per_node": machines.gpus_per_node,
        "nodes": machines.nodes,
        "gpus": machines.gpus,
        "link": machines.link,
    }


def _option(option: Option) -> Document:
    return {
        "kind": option.kind,
        "replicas": option.replicas,
        "spare_gpus": option.spare_gpus,
        "tokens_of_all": option.tokens,
        **_fit(option.fit),
    }


def _fit(fit: Fit) -> Document:
    return {
        "tensor_parallel": fit.sharding.tensor_parallel,
        "pipeline_parallel": fit.sharding.pipeline_parallel,
        "gpus": fit.sharding.gpus,
        "fits": fit.fits,
        "missing_bytes": fit.missing_bytes,
        "usable_bytes": fit.usable_bytes,
        "weights_bytes": fit.weights_bytes,
        "allowance_bytes": fit.allowance_bytes,
        "kv_budget_bytes": fit.kv_budget_bytes,
        "kv_bytes_per_token": fit.kv_bytes_per_token,
        "state_bytes_per_sequence": fit.state_bytes,
        "tokens": fit.tokens,
        "longest_context_tokens": fit.longest_context_tokens,
    }


def _start(start: Start) -> Document:
    rates = start.rates
    return {
        "max_num_seqs": _value(start.max_num_seqs),
        "max_num_batched_tokens": _value(start.max_num_batched_tokens),
        "queue_cap": _value(start.queue_cap),
        "sequences": start.concurrency._asdict(),
        "mean_context_tokens": round(start.mean_context_tokens),
        "rates": None if rates is None else {"from": start.rates_from, **rates_described(rates)},
        "requests_per_second_of_a_replica": _rounded(start.requests_per_second),
        "waits": [
            {
                "load_permille": wait.load_permille,
                "requests_per_second": _rounded(wait.requests_per_second),
                "service_times": round(wait.service_times, 2),
                "seconds": round(wait.seconds, 3),
                "waiting": round(wait.waiting, 2),
            }
            for wait in start.waits
        ],
    }


def rates_described(rates: Rates) -> Document:
    """Tokens a second of one GPU; null for what it does not do."""
    return {name: round(value, 1) if math.isfinite(value) else None for name, value in rates._asdict().items()}


def _value(value: Value | None) -> Document | None:
    return None if value is None else value._asdict()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def fan_out_described(made: FanOut) -> Document:
    return {
        "requests_per_second": _rounded(made.requests_per_second),
        "calls_per_request": round(made.calls_per_request, 3),
        "calls": [_demand(each) for each in made.calls],
        "models": [{**_demand(each.demand), "gpus": each.gpus} for each in made.models],
    }


def _demand(demand: Demand) -> Document:
    return {name: _rounded(value) if isinstance(value, float) else value for name, value in demand._asdict().items()}
