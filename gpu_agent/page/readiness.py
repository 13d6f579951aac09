"""Why a node or an engine shall get no new work now, by name; no reason: it may. Pure.

docs/readiness.md lists the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from wire.messages import EngineReport, GpuReport
from wire.snapshot import NodeSnapshot

# Of a machine that its cloud will take away, and so of all that runs on it.
SPOT_NOTICE = "spot_notice"


def node_reasons(known: NodeSnapshot | None, gpus: Sequence[GpuReport]) -> list[str]:
    """`known`: the last slice that was applied. One lost GPU of several is a matter of the engines on it."""
    if known is None:
        return ["not_configured"]
    reasons = ["node_cordoned"] if known.node.cordoned else []
    if gpus and all(gpu.state != "ok" for gpu in gpus):
        reasons.append("gpus_lost")
    return reasons


def engine_reasons(
    known: NodeSnapshot | None, name: str, seen: EngineReport | None, *, leaving: bool = False
) -> list[str]:
    """`seen`: the last look at it. `leaving`: its process is about to be ended."""
    if known is None:
        return ["not_configured"]
    if (engine := known.engines.get(name)) is None:
        return ["engine_unknown"]
    reasons = ["engine_leaving"] if leaving else []
    if known.node.cordoned:
        reasons.append("node_cordoned")
    elif engine.cordoned:
        reasons.append("engine_cordoned")
    if seen is None:
        reasons.append("engine_not_seen")
    elif seen.state != "up":
        reasons.append(f"engine_{seen.state}")
    elif seen.condition != "ok":
        reasons.append(f"engine_{seen.condition}")
    return reasons
