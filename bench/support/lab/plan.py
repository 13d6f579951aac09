"""What the lab consists of while nothing is wrong with it: nodes, engines, pools, tenants, and how often it looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODEL, EMBEDDER = "lab/llama-8b", "lab/embedder"
GATEWAY = "gateway-1"
CONTEXT_TOKENS = 4096
LONG_PROMPT_TOKENS = 1024


@dataclass(frozen=True)
class Engine:
    """`gpus`: indexes on its node. `speed`: beside the modelled GPU's."""

    pool: str
    node: str
    gpus: tuple[int, ...]
    speed: float
    kv_tokens: int
    model: str = MODEL

    @property
    def arguments(self) -> dict[str, Any]:
        """Of its configuration file, which levers change. Of the GPUs the first one is in use."""
        return {"max-num-seqs": 64, "max-num-batched-tokens": 512, "max-model-len": CONTEXT_TOKENS,
                "tensor-parallel-size": 1, "speed": self.speed, "kv-capacity-tokens": self.kv_tokens,
                "start-seconds": 0.4}  # fmt: skip


ENGINES = {
    "chat-1": Engine("chat", "n1", (0, 1), 0.12, 6_400),
    "embed-1": Engine("embed", "n1", (2, 3), 1.0, 16_000, EMBEDDER),
    "long-1": Engine("long", "n1", (4, 5), 1.0, 24_000),
    "chat-2": Engine("chat", "n2", (0, 1), 0.12, 6_400),
}
NODES = tuple(dict.fromkeys(engine.node for engine in ENGINES.values()))
# A queue holds what is served within the time that a first token is promised in, less what engines take for it.
POOLS: dict[str, dict[str, Any]] = {
    "chat": {"model": MODEL, "work": "short", "ttft_slo_ms": 2000, "tpot_slo_ms": 100, "queue_cap": 12,
             "queue_ttl_ms": 1700},
    "long": {"model": MODEL, "work": "long", "ttft_slo_ms": 6000, "tpot_slo_ms": 100, "queue_cap": 8,
             "queue_ttl_ms": 5000},
    "embed": {"model": EMBEDDER, "work": "embedding", "e2e_slo_ms": 2000, "queue_cap": 32, "queue_ttl_ms": 1000},
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    MODEL: {"max_context_tokens": CONTEXT_TOKENS, "default_max_tokens": 256, "max_tokens": 1024,
            "kv_bytes_per_token": 131_072, "cold_start_budget_ms": {"load_weights": 3_000}},
    EMBEDDER: {"max_context_tokens": CONTEXT_TOKENS, "default_max_tokens": 16, "max_tokens": 16},
}  # fmt: skip
PRIORITY_CLASSES: dict[str, dict[str, Any]] = {
    "interactive": {"rank": 0, "ageing_ms": 2000},
    "batch": {"rank": 10, "ageing_ms": 2000, "queue_ttl_ms": 20_000, "shed_order": 10, "ttft_slo_ms": 60_000},
}
ROUTES: dict[str, dict[str, Any]] = {
    "embeddings": {"order": 5, "match": {"models": [EMBEDDER]}, "pools": {"embed": 1000}},
    "long-prompts": {"order": 10, "match": {"min_prompt_tokens": LONG_PROMPT_TOKENS}, "pools": {"long": 1000}},
    "everything-else": {"order": 100, "match": {}, "pools": {"chat": 1000}},
}
SESSION_LIMITS: dict[str, dict[str, Any]] = {
    "agents": {"max_iterations": 30, "max_tokens": 60_000, "max_repeated_calls": 4, "max_depth": 4, "idle_ms": 60_000}
}
_INTERACTIVE = {"default_priority_class": "interactive", "session_limits": "agents"}
# Those of every day; others come with what goes wrong.
TENANTS: dict[str, dict[str, Any]] = {
    "support": {"weight": 4, **_INTERACTIVE},
    "research": {"weight": 2, **_INTERACTIVE},
    "agents": {"weight": 2, **_INTERACTIVE},
    "rag": {"weight": 2, **_INTERACTIVE},
    "nightly": {"weight": 1, "default_priority_class": "batch"},
}
# Of weights in bf16; nobody reads them, so that the file may be a hole.
MODEL_FILE_BYTES = 16 * 10**9
# Nothing is waited for longer than it takes.
AGENT_SETTINGS = {
    "HEADWORKS_AGENT_REPORT_INTERVAL_SECONDS": "3",
    "HEADWORKS_AGENT_PROBE_INTERVAL_SECONDS": "1",
    "HEADWORKS_AGENT_GPU_INTERVAL_SECONDS": "2",
    "HEADWORKS_AGENT_GPU_SLOW_INTERVAL_SECONDS": "4",
    "HEADWORKS_AGENT_GPU_PROCESSES_INTERVAL_SECONDS": "4",
    "HEADWORKS_AGENT_HOST_INTERVAL_SECONDS": "2",
    "HEADWORKS_AGENT_XID_RULES_FILE": "",
}
GATEWAY_SETTINGS = {
    "HEADWORKS_GATEWAY_PUSH_INTERVAL_SECONDS": "1",
    # A machine that is busy for seconds is no engine that cannot be reached.
    "HEADWORKS_GATEWAY_CONNECT_TIMEOUT_SECONDS": "15",
}
# Commands of the agents come as fast as those of people at the page.
NODE_ACTS = ("release_gpus", "take_up_gpus")
ENGINE_ARGUMENTS = ("max-num-seqs", "max-num-batched-tokens", "tensor-parallel-size", "api-server-count",
                    "enforce-eager")  # fmt: skip
ENGINE_ACTS = ("start", "stop", "restart", "drain", "sleep", "wake", "warm_up", "pause", "resume", "reset_prefix_cache")


def control_plane_settings(window_seconds: int, interval_seconds: int) -> Mapping[str, str]:
    return {
        "HEADWORKS_DIAGNOSIS_WINDOW_SECONDS": str(window_seconds),
        "HEADWORKS_DIAGNOSIS_INTERVAL_SECONDS": str(interval_seconds),
        # On a machine of two cores that runs the whole fleet as well.
        "HEADWORKS_DIAGNOSIS_QUERY_SECONDS": "20",
    }
