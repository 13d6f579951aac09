"""The GPUs that a pool's engines run on, as far as their nodes tell."""

from __future__ import annotations

from controlplane.diagnosis.detector import Fleet, PoolFacts
from controlplane.diagnosis.detectors.measured import engines_of
from policy.planning.gpus import Gpu, called


def nodes_of(facts: PoolFacts, fleet: Fleet) -> set[str]:
    return {row["node"] for row in engines_of(facts, fleet).values() if row["node"]}


def kinds_of(facts: PoolFacts, fleet: Fleet) -> set[Gpu]:
    """Of all GPUs of these nodes that are known by name or memory."""
    nodes = nodes_of(facts, fleet)
    found = (called(gpu["model"], gpu["memory_bytes"]) for gpu in fleet.gpus if gpu["node"] in nodes)
    return {gpu for gpu in found if gpu is not None}


def has_fp8(facts: PoolFacts, fleet: Fleet) -> bool:
    """Whether each of them computes in FP8: Ada, Hopper and later."""
    kinds = kinds_of(facts, fleet)
    return bool(kinds) and all(gpu.has_fp8 for gpu in kinds)
