"""What is known of a rollout and of the fleet at one moment, for the machine to decide on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from wire.canonical import Document

Judgement = Literal["holds", "broken", "too_few", "unanswered"]


@dataclass(frozen=True)
class EngineFacts:
    """`cordoned`: by people, itself or its node. `up`: it answers, as far as its agent tells; without one nobody knows.

    `silent`: its node is unheard of or revoked. `allowed`: acts that its node's policy lets be done to it. `ending_by`:
    an act that ends its process or puts it to sleep, and that has not ended itself.
    """

    name: str
    pool: str
    has_agent: bool = True
    held_out_by: str = ""
    cordoned: bool = False
    up: bool = True
    silent: bool = False
    condition: str = "ok"
    version: str = ""
    kv_capacity_tokens: int | None = None
    failed_probes: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()
    reported_at: datetime | None = None
    gpus: int = 1
    ending_by: str = ""

    @property
    def trouble(self) -> str:
        """Why it cannot serve, in words; empty where it can. A cordon is no trouble."""
        if self.silent:
            return "its node is not heard of"
        if not self.up:
            return "it does not answer"
        if self.ending_by:
            return f"{self.ending_by} is asked of it"
        return "" if self.condition == "ok" else f"it is {self.condition}"

    @property
    def takes_work(self) -> bool:
        return not self.trouble and not self.cordoned


@dataclass(frozen=True)
class ActFacts:
    state: str
    said: str = ""
    ended_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.state in ("waiting", "running")


@dataclass(frozen=True)
class Facts:
    """`routes`: every route that names either pool, in its public form. `refusing`, `pending`: gateways that refuse the
    configuration, and such as do not run yet what the rollout wrote last; `unheard`: those that nobody hears of, which
    are not waited for. `gate`: what stops engines from being used, in words. `judgements`: of the rollout's
    conditions, by name; `stage`: what a staged change has in common with it. `unwatched`: nobody looked for so long
    before that what the conditions saw meanwhile is not known. `deaf`: no agent and no gateway is heard of at all,
    which says more of the control plane than of them.
    """

    engines: Mapping[str, EngineFacts] = field(default_factory=dict)
    routes: Mapping[str, Document] = field(default_factory=dict)
    refusing: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    acts: Mapping[str, ActFacts] = field(default_factory=dict)
    gate: tuple[str, ...] = ()
    judgements: Mapping[str, Judgement] = field(default_factory=dict)
    stage: str = ""
    unwatched: bool = False
    deaf: bool = False
    unheard: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepView:
    """A step as its row has it."""

    index: int
    kind: str
    arguments: Mapping[str, Any]
    state: str = "waiting"
    begun_at: datetime | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def acts(self) -> Mapping[str, str]:
        """What was asked for: by a key, the act's id."""
        asked: Mapping[str, str] = self.evidence.get("acts", {})
        return asked


@dataclass(frozen=True)
class RolloutView:
    """A rollout as its row has it, with its steps in order."""

    kind: str
    state: str
    holder: str
    pool: str
    new_pool: str = ""
    engines: tuple[str, ...] = ()
    new_engines: tuple[str, ...] = ()
    base: Mapping[str, Document] = field(default_factory=dict)
    left: Mapping[str, Document] = field(default_factory=dict)
    share_permille: int = 0
    unanswered_looks: int = 0
    steps: tuple[StepView, ...] = ()

    @property
    def current(self) -> StepView | None:
        """The step that it is at; None: all are done."""
        return next((step for step in self.steps if step.state in ("waiting", "running")), None)
