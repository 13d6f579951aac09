"""How every benchmark says what it measured: a table with its targets, then one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

# Figure → on which side of which bound it must lie.
Targets = Mapping[str, tuple[Literal["at most", "at least"], float]]


def report(benchmark: str, text: str | None, figures: Mapping[str, float], targets: Targets) -> int:
    """Print `text` and the figures, each target beside its figure. The exit status: 0 only if every target holds."""
    verdicts = {name: _holds(figures[name], *target) for name, target in targets.items()}
    print(text)
    for name, value in figures.items():
        said = ""
        if name in targets:
            relation, bound = targets[name]
            part = f" ({value / bound:.2f} of it)" if bound else ""
            said = f"  {relation} {bound:g}: {verdicts[name]}{part}"
        print(f"{name:40} {value:14.3f}{said}")
    holds = all(verdicts.values())
    rounded = {name: round(value, 3) for name, value in figures.items()}
    told = {name: f"{relation} {bound:g}" for name, (relation, bound) in targets.items()}
    print(json.dumps({"benchmark": benchmark, "figures": rounded, "targets": told, "holds": holds}))
    return 0 if holds else 1


def _holds(value: float, relation: Literal["at most", "at least"], bound: float) -> bool:
    return value <= bound if relation == "at most" else value >= bound
