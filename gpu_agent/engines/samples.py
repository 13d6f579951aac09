"""Looks at engines as metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_agent.engines.canary import CANARY
from gpu_agent.engines.look import Look
from gpu_agent.samples import Sample
from wire.engine_pages.names import PREFIX, RANK_SERIES
from wire.snapshot import NodeEngine


def engine_samples(name: str, engine: NodeEngine, look: Look) -> list[Sample]:
    """`up`, `hung` where it can be told, and all numbers of the engine's page: of the server, of its ranks, its own."""
    labels = engine_labels(name, engine)
    up = Sample(f"{PREFIX}up", labels, float(look.report.state == "up"), look.at_ms)
    hung = [] if look.hung is None else [Sample(f"{PREFIX}hung", labels, float(look.hung), look.at_ms)]
    watched = [*hung, *_watched(labels, look)]
    numbers = [_sample(labels, *reading, look.at_ms) for reading in look.numbers]
    own = [Sample(each.name, labels | each.labels, each.value, look.at_ms) for each in look.own]
    return [up, *watched, *numbers, *_of_ranks(labels, look), *own]


def engine_labels(name: str, engine: NodeEngine) -> dict[str, str]:
    """The labels of all series of an engine, as configured; a label without a value is left out."""
    given = {"engine": name, "kind": engine.kind, "model": engine.model, "pool": engine.pool}
    return {label: value for label, value in given.items() if value}


def _of_ranks(labels: dict[str, str], look: Look) -> list[Sample]:
    return [
        Sample(f"{PREFIX}rank_{reading.name}", {**labels, "rank": rank}, reading.value, look.at_ms)
        for rank, numbers in look.ranks.items()
        for reading in numbers
        if reading.name in RANK_SERIES
    ]


def _watched(labels: dict[str, str], look: Look) -> Iterator[Sample]:
    """What the watch adds: the condition that holds, restarts, and what the probes last showed."""
    yield Sample(f"{PREFIX}condition", labels | {"condition": look.report.condition}, 1.0, look.at_ms)
    yield Sample(f"{PREFIX}restarts_total", labels, float(look.restarts), look.at_ms)
    for probe, outcome in look.probes.items():
        yield Sample(f"{PREFIX}probe_ok", labels | {"probe": probe}, float(not outcome.failure), look.at_ms)
    canary = look.probes.get(CANARY.name)
    if canary is not None and not canary.failure:
        yield Sample(f"{PREFIX}canary_seconds", labels, canary.seconds, look.at_ms)


def _sample(labels: dict[str, str], name: str, label: tuple[str, str] | tuple[()], value: float, at_ms: int) -> Sample:
    own = labels | {label[0]: label[1]} if label else labels
    return Sample(PREFIX + name, own, value, at_ms)
