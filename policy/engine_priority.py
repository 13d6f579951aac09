"""The priority that an engine is told of a request: its own scheduler then goes by the same order as the gateway's.

Ranks are served from the lowest. vLLM takes them as they are and, unless it was started with `--scheduling-policy
priority`, passes over them. SGLang may refuse requests with a priority unless it was started for them, and the other
kinds know none: these are told nothing. Source: facts of engines; seed 1, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from wire.snapshot import EngineKind, PriorityClass


def engine_priority(kind: EngineKind, priority_class: str, classes: Mapping[str, PriorityClass]) -> int | None:
    """The field `priority` of a request's body; None: none. A request of no class has the worst rank."""
    if kind != "vllm" or not classes:
        return None
    described = classes.get(priority_class)
    return max(each.rank for each in classes.values()) if described is None else described.rank
