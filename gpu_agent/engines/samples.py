"""Looks at engines as metrics. Pure."""

from __future__ import annotations

from gpu_agent.engines.look import Look
from gpu_agent.engines.names import PREFIX
from gpu_agent.samples import Sample
from wire.snapshot import NodeEngine


def engine_samples(name: str, engine: NodeEngine, look: Look) -> list[Sample]:
    """`up`, `hung` where it can be told, and every number that the engine's page gave."""
    given = {"engine": name, "kind": engine.kind, "model": engine.model, "pool": engine.pool}
    labels = {label: value for label, value in given.items() if value}
    up = Sample(f"{PREFIX}up", labels, float(look.report.state == "up"), look.at_ms)
    hung = [] if look.hung is None else [Sample(f"{PREFIX}hung", labels, float(look.hung), look.at_ms)]
    return [up, *hung, *(_sample(labels, *reading, look.at_ms) for reading in look.numbers)]


def _sample(labels: dict[str, str], name: str, label: tuple[str, str] | tuple[()], value: float, at_ms: int) -> Sample:
    own = labels | {label[0]: label[1]} if label else labels
    return Sample(PREFIX + name, own, value, at_ms)
