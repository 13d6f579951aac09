"""A fleet in memory that does what decisions say, for the machine to be tried on without a database."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.rollouts import machine, plans
from controlplane.rollouts.machine import Decision
from controlplane.rollouts.observed import ActFacts, EngineFacts, Facts, Judgement, RolloutView, StepView
from controlplane.rollouts.sides import Pair, base_of, left_as

START = datetime(2026, 1, 1, tzinfo=UTC)
HOLDER = "rollout 1"
ALL_ACTS = frozenset({"start", "stop", "warm_up", "drain", "restart", "sleep", "wake"})
WARM_UP = {"prompts": ["hello"], "schemas": [], "requests": 2, "limit_seconds": 60}
SPEC: dict[str, Any] = {
    "steps": [{"share_permille": share, "for_seconds": 10} for share in (50, 500, 1000)],
    "watch": {"go_on_unjudged": False},
    "keep_warm_seconds": 20,
    "retire": "stop",
    "warm_up": WARM_UP,
    "start_limit_seconds": 60,
    "check_limit_seconds": 60,
    "drain_limit_seconds": 60,
    "restart_limit_seconds": 60,
    "capacity_may_fall_percent": 5,
    "max_unavailable": 1,
    "arguments": {},
}


def route(
    name: str = "all",
    pools: dict[str, int] | None = None,
    fallbacks: dict[str, int] | None = None,
    cascade: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {"name": name, "pools": pools, "fallbacks": fallbacks, "cascade": cascade}


def engine(name: str, pool: str, **facts: Any) -> EngineFacts:
    told = {"kv_capacity_tokens": 1000, "allowed": ALL_ACTS, "reported_at": START, **facts}
    return EngineFacts(name, pool, **told)


@dataclass
class World:
    """What there is; `look` is one look of a worker, which may be killed before it has written anything."""

    rollout: RolloutView
    engines: dict[str, EngineFacts]
    routes: dict[str, dict[str, Any]] = field(default_factory=dict)
    now: datetime = START
    judgements: dict[str, Judgement] = field(default_factory=dict)
    refusing: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    gate: tuple[str, ...] = ()
    acts: dict[str, ActFacts] = field(default_factory=dict)
    # Action → how acts of it end.
    endings: dict[str, ActFacts] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def red_black(cls, old: int, new: int, routes: Sequence[dict[str, Any]], **spec: Any) -> World:
        engines = {name: engine(name, "old") for name in (f"old-{number}" for number in range(old))}
        engines |= {f"new-{number}": engine(f"new-{number}", "new", held_out_by=HOLDER) for number in range(new)}
        by_name = {each["name"]: deepcopy(each) for each in routes}
        pair = Pair("old", "new")
        base = {name: role for name, each in by_name.items() if (role := base_of(each, "old")) is not None}
        names = [name for name in engines if name.startswith("new")]
        steps = plans.red_black({**SPEC, **spec}, names, names, 1)
        view = RolloutView(
            "red_black", "running", HOLDER, "old", "new",
            tuple(name for name in engines if name.startswith("old")), tuple(names),
            base, {name: left_as(by_name[name], pair) for name in base}, steps=_views(steps),
        )  # fmt: skip
        return cls(view, engines, by_name)

    @classmethod
    def restarting(cls, engines: int, **spec: Any) -> World:
        named = {f"e-{number}": engine(f"e-{number}", "old") for number in range(engines)}
        steps = plans.rolling_restart({**SPEC, **spec}, list(named))
        view = RolloutView("rolling_restart", "running", HOLDER, "old", engines=tuple(named), steps=_views(steps))
        return cls(view, named)

    @property
    def configuration(self) -> tuple[dict[str, Any], dict[str, str]]:
        """What gateways go by."""
        return deepcopy(self.routes), {name: each.held_out_by for name, each in self.engines.items()}

    def facts(self) -> Facts:
        named = {name: each for name, each in self.routes.items() if _names(each) & {"old", "new"}}
        return Facts(self.engines, named, self.refusing, self.pending, self.acts, self.gate, self._judged(), "")

    def _judged(self) -> dict[str, Judgement]:
        step = self.rollout.current
        watched = step is not None and step.kind in machine.WATCHED
        return dict(self.judgements) if watched and self.rollout.share_permille else {}

    def look(self, *, killed: bool = False) -> Decision:
        decision = machine.decide(self.rollout, self.facts(), self.now)
        if not killed:
            self.write(decision)
        return decision

    def write(self, decision: Decision) -> None:
        for name in decision.moves.hold_out:
            assert not self.engines[name].held_out_by
            self.engines[name] = replace(self.engines[name], held_out_by=HOLDER)
        for name in decision.moves.put_back:
            assert self.engines[name].held_out_by == HOLDER
            self.engines[name] = replace(self.engines[name], held_out_by="")
        left = dict(self.rollout.left)
        for name, fields in decision.moves.routes.items():
            self.routes[name] = {**self.routes[name], **fields}
            left[name] = left_as(self.routes[name], Pair("old", "new"))
        steps = {step.index: step for step in self.rollout.steps}
        asked = {act.key: f"{act.action}-{len(self.asked) + number}" for number, act in enumerate(decision.acts)}
        for act in decision.acts:
            self.asked.append((act.engine, act.action))
            ending = self.endings.get(act.action, ActFacts("done", "", self.now))
            self.acts[asked[act.key]] = ending
        for change in decision.steps:
            step = steps[change.index]
            evidence = {**step.evidence, **change.evidence}
            if asked:
                evidence["acts"] = {**step.acts, **asked}
            steps[change.index] = replace(
                step, state=change.state, begun_at=step.begun_at or self.now, evidence=evidence
            )
        if decision.takes_back:
            last = max(steps)
            steps[last + 1] = StepView(last + 1, machine.TAKE_BACK, {}, "running", self.now)
        share = self.rollout.share_permille if decision.share_permille is None else decision.share_permille
        self.rollout = replace(
            self.rollout, state=decision.state, left=left, share_permille=share,
            unanswered_looks=decision.unanswered_looks, steps=tuple(steps[index] for index in sorted(steps)),
        )  # fmt: skip

    def run(self, looks: int = 400, seconds: float = 2) -> None:
        """Look until it has ended, or so often."""
        for _ in range(looks):
            if self.rollout.state not in ("running", "returning", "paused"):
                return
            self.look()
            self.pass_time(seconds)

    def reach(self, kind: str, **arguments: Any) -> None:
        """Look until the next step is one of this kind."""
        for _ in range(400):
            step = self.rollout.current
            if step is not None and step.kind == kind and arguments.items() <= dict(step.arguments).items():
                return
            self.look()
            self.pass_time(2)
        raise AssertionError(f"never came to {kind}")

    def run_to(self, kind: str, **arguments: Any) -> None:
        """Look until it is at a step of this kind, and has written there what it writes at once."""
        self.reach(kind, **arguments)
        while self.look().is_write:
            pass

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.engines = {name: replace(each, reported_at=self.now) for name, each in self.engines.items()}

    def set(self, name: str, **facts: Any) -> None:
        self.engines[name] = replace(self.engines[name], **facts)

    def serving(self, pool: str) -> list[str]:
        return [name for name, each in self.engines.items() if each.pool == pool and not each.held_out_by]


def _names(each: dict[str, Any]) -> set[str]:
    cascade = each["cascade"]
    return {*(each["pools"] or ()), *(each["fallbacks"] or ()), *([cascade["pool"]] if cascade else ())}


def _views(steps: Sequence[plans.Planned]) -> tuple[StepView, ...]:
    return tuple(StepView(index, step.kind, step.arguments) for index, step in enumerate(steps))
