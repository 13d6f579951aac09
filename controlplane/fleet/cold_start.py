"""The start of an engine beside what its model allows for it, phase by phase. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from wire.canonical import Document

TOTAL = "total"
# Of vLLM's phases those that hold the others, and follow each other.
_WHOLE_OF_VLLM = ("load_model", "init_engine")


def cold_start(phases_ms: Mapping[str, int], budget_ms: Mapping[str, int]) -> Document:
    """`phases`: of each that was told or has a budget, what it took, what it may take, and whether that is over.

    What was not told is null, and over is null where either is: it is not known. `over`: the phases that took too long.
    """
    took = {**phases_ms, **({TOTAL: total} if (total := total_ms(phases_ms)) is not None else {})}
    names = [*sorted((took.keys() | budget_ms.keys()) - {TOTAL}), *([TOTAL] if TOTAL in {*took, *budget_ms} else [])]
    phases = [_beside(name, took.get(name), budget_ms.get(name)) for name in names]
    return {"phases": phases, "over": [phase["phase"] for phase in phases if phase["over"]]}


def total_ms(phases_ms: Mapping[str, int]) -> int | None:
    """The whole start: as the engine tells it, else the sum of vLLM's two outermost phases; None: not known."""
    if TOTAL in phases_ms:
        return phases_ms[TOTAL]
    if all(phase in phases_ms for phase in _WHOLE_OF_VLLM):
        return sum(phases_ms[phase] for phase in _WHOLE_OF_VLLM)
    return None


def _beside(phase: str, took_ms: int | None, budget_ms: int | None) -> Document:
    over = None if took_ms is None or budget_ms is None else took_ms > budget_ms
    return {"phase": phase, "took_ms": took_ms, "budget_ms": budget_ms, "over": over}
