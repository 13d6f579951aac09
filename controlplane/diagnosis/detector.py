"""What a detector is: questions to the metrics, a pure judgement on the answers, and levers that move what it found.

A detector reads nothing itself. The round asks its PromQL, loads the fleet once for all detectors, and calls `judge`;
so a judgement can be tested on numbers alone, and the same code runs live, in the lab and over stored series.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from django.utils.functional import Promise

from wire.canonical import Document

# Stands in queries for the span that a detector looks back over.
WINDOW = "$window"


@dataclass(frozen=True)
class Reading:
    """One series of a query's answer."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Readings:
    """The answers to a detector's queries, by their names. One that found nothing is an empty tuple.

    NaN and infinities are left out: nothing can be said of a rate over nothing.
    """

    answers: Mapping[str, tuple[Reading, ...]]

    def of(self, query: str) -> tuple[Reading, ...]:
        return self.answers[query]

    def by(self, query: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The values by those labels; "" where a series lacks one. Series that agree in them are added up."""
        found: dict[tuple[str, ...], float] = {}
        for reading in self.answers[query]:
            key = tuple(reading.labels.get(label, "") for label in labels)
            found[key] = found.get(key, 0.0) + reading.value
        return found

    def by_pool(self, query: str) -> dict[str, float]:
        return {pool: value for (pool,), value in self.by(query, "pool").items()}


@dataclass(frozen=True)
class Lengths:
    """Tokens of prompts, asked outputs and outputs, as gateways measured them: quantile in per mille → tokens.

    `counted`: requests behind it. Quantiles are 100, 200, … 900, 950, 990.
    """

    counted: int
    prompt_tokens: Mapping[int, int]
    max_tokens: Mapping[int, int]
    output_tokens: Mapping[int, int]


@dataclass(frozen=True)
class PoolFacts:
    """`row` is the pool's public form (REST). Engines are those that may take work; capacity is what these measured."""

    row: Document
    engines: tuple[str, ...]
    kv_capacity_tokens: int | None
    lengths: Lengths | None


@dataclass(frozen=True)
class Fleet:
    """The configuration and what the fleet reported, as one transaction saw it. Each value is the public REST form.

    `events` are those of nodes within the last hour, with `incident_state` of what each belongs to. `tenants_of` names
    a pool's tenants with the share of its tokens that each had in the window (0 … 1).
    """

    at: datetime
    window_seconds: int
    pools: Mapping[str, PoolFacts]
    engines: Mapping[str, Document]
    nodes: Mapping[str, Document]
    gpus: tuple[Document, ...]
    models: Mapping[str, Document]
    tenants: Mapping[str, Document]
    priority_classes: Mapping[str, Document]
    session_limits: Mapping[str, Document]
    routes: tuple[Document, ...]
    events: tuple[Document, ...]
    tenants_of: Mapping[str, Mapping[str, float]]
    cache_policies: Mapping[str, Document] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """One number that the judgement rests on. `expr`: the PromQL that draws it (over time, too); "" for a fact.

    `unit` is one of: ratio, tokens, requests, per_second, tokens_per_second, seconds, bytes, count, celsius, watts.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    expr: str = ""


@dataclass(frozen=True)
class Edit:
    """One row's new values: `noun` and `key` as REST has them (`pools`, `chat`), `changes` as PATCH takes them.

    `create`: there is no such row yet, and `changes` is the whole of it.
    """

    noun: Literal["pools", "tenants", "priority-classes", "routes", "models", "session-limits", "cache-policies",
                  "engines", "nodes"]  # fmt: skip
    key: str
    changes: Mapping[str, Any]
    create: bool = False


@dataclass(frozen=True)
class Command:
    """An act of an agent: `subject` is `engine/NAME` or `node/NAME`, action and arguments as wire/acts.py has them."""

    subject: str
    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Lever:
    """What would help, ready to be applied: edits and commands, or, where neither can, `advice` alone.

    `key` names it among the detector's levers, whatever the numbers. `why` says what they were derived from.
    """

    key: str
    title: Promise | str
    why: Promise | str
    edits: tuple[Edit, ...] = ()
    commands: tuple[Command, ...] = ()
    advice: Promise | str = ""


@dataclass(frozen=True)
class Finding:
    """A bottleneck at one place: `subject` is `pool/chat`, `engine/e1`, `tenant/acme`, `node/n1`, `gateway/g1` or
    `fleet`.

    Confidence in per mille: how far the evidence can mean anything else. The best lever comes first.
    """

    subject: str
    summary: Promise | str
    confidence_permille: int
    evidence: tuple[Evidence, ...]
    pools: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    levers: tuple[Lever, ...] = ()


class Detector(ABC):
    """One of the twenty. `number` is its row in the table, `name` its name everywhere.

    `queries`: name → PromQL with `$window` as its range. `lasts_rounds`: in so many rounds one after the other it must
    be found before it is shown, and be missed before it is over. `weighs_window`: it judges shares and rates of a
    window, which mean nothing while half of it is from before a lever; a fault that just is tells itself at any moment.
    """

    number: ClassVar[int]
    name: ClassVar[str]
    title: ClassVar[Promise]
    explanation: ClassVar[Promise]
    queries: ClassVar[Mapping[str, str]]
    lasts_rounds: ClassVar[int] = 2
    weighs_window: ClassVar[bool] = True

    @abstractmethod
    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        """What is wrong where, at most one finding a subject. Pure."""
