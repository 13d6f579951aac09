"""What the demo's fleet consists of: nodes, engines, pools, tenants and their traffic."""

from __future__ import annotations

from typing import Any

MODEL = "sim/llama-8b"
# Context that one simulated engine can hold, and its speed beside the modelled GPU's: so little that the traffic below,
# which one machine can carry, is seen in its KV cache.
ENGINE_KV_TOKENS = 24_000
ENGINE_SPEED = 0.4
MAX_CONTEXT_TOKENS = 20_480
GATEWAY = "gateway-1"
NODES = ("sim-node-1", "sim-node-2", "sim-node-3")
GPUS_PER_NODE = 8
TTFT_SLO_MS = 2000
# pool → what it is for
POOLS = {"short": "short", "long": "long"}
# engine → (pool, node)
ENGINES = {
    "short-1": ("short", "sim-node-1"),
    "short-2": ("short", "sim-node-2"),
    "long-1": ("long", "sim-node-2"),
    "long-2": ("long", "sim-node-3"),
}
# A request of this many prompt tokens or more goes to the long pool (the first seed's example).
LONG_PROMPT_TOKENS = 1024
_INTERACTIVE = {"default_priority_class": "interactive"}
TENANTS: dict[str, dict[str, Any]] = {
    "support": {"weight": 3, "tpm_limit": 120_000, "rpm_limit": 600, "max_parallel_requests": 32, **_INTERACTIVE},
    "research": {"weight": 2, "tpm_limit": 120_000, "rpm_limit": 600, "max_parallel_requests": 32, **_INTERACTIVE},
    "nightly-batch": {
        "weight": 1,
        "tpm_limit": 240_000,
        "max_parallel_requests": 16,
        "default_priority_class": "batch",
    },
}
# What each tenant sends in the demo, for `simulator.traffic`.
TRAFFIC: dict[str, dict[str, Any]] = {
    "support": {
        "rate_per_second": 1.5,
        "output_tokens": {"kind": "lognormal", "median_tokens": 350, "sigma": 0.7, "max_tokens": 2_000},
    },
    "research": {
        "rate_per_second": 0.3,
        "prompt_tokens": {"kind": "pareto", "min_tokens": 600, "alpha": 1.2, "max_tokens": 16_000},
    },
    "nightly-batch": {
        "rate_per_second": 0.3,
        "prompt_tokens": {"kind": "lognormal", "median_tokens": 1500, "sigma": 1.0, "max_tokens": 16_000},
        "stream_share": 0.0,
    },
}
# What each node's own policy lets be done to it and to its engines; anything else its agent refuses.
NODE_ACTS = ("release_gpus", "take_up_gpus")
ENGINE_ACTS = ("sleep", "wake", "pause", "resume", "reset_prefix_cache", "drain", "load_lora", "unload_lora")
RECEIVER = "on-call"
# The demo's receiver listens on this machine, where webhooks go to only if an admin allows it.
WEBHOOK_NETWORKS = "127.0.0.0/8"


def engines_of(node: str) -> list[str]:
    return [name for name, (_, its_node) in ENGINES.items() if its_node == node]
