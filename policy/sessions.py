"""What one session of an agent may take, and when it is at its end: pure arithmetic, no I/O.

A loop does not stop by itself, so each session has ceilings, and a session that passed one is closed. Every call
reserves the most that it can take before it runs and settles on what it took, so that calls side by side are all
counted. Source: seed 1, section 14.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec import UNSET, UnsetType

from wire.snapshot import SessionLimits

Ceiling = Literal["iterations", "tokens", "cost", "depth", "repeated_call"]
# From this share of a ceiling on a session is near it.
NEAR_PERMILLE = 800


class Spent(NamedTuple):
    """Model calls, tokens and money: what was used, or what running calls may still take."""

    iterations: int = 0
    tokens: int = 0
    cost_micros: int = 0

    def plus(self, other: Spent) -> Spent:
        return Spent(
            self.iterations + other.iterations, self.tokens + other.tokens, self.cost_micros + other.cost_micros
        )

    def less(self, other: Spent) -> Spent:
        return Spent(
            self.iterations - other.iterations, self.tokens - other.tokens, self.cost_micros - other.cost_micros
        )


NOTHING = Spent()


class Call(NamedTuple):
    """One call that wants to run. `output_tokens`: the most of each of its `sequences`; 0 where it generates nothing.

    `depth`: its X-Agent-Depth. `repeated`: how many times running the same tool was called with the same arguments.
    Costs are of one token.
    """

    prompt_tokens: int
    output_tokens: int
    sequences: int = 1
    prompt_cost_micros: int = 0
    output_cost_micros: int = 0
    depth: int = 0
    repeated: int = 0

    def most(self, output_tokens: int) -> Spent:
        """What it may take when each sequence has `output_tokens` at most."""
        return self.taken(self.prompt_tokens, output_tokens * self.sequences)

    def taken(self, prompt_tokens: int, output_tokens: int) -> Spent:
        """What it took, over all its sequences."""
        cost = prompt_tokens * self.prompt_cost_micros + output_tokens * self.output_cost_micros
        return Spent(1, prompt_tokens + output_tokens, cost)


class Admitted(NamedTuple):
    """The call may run, each sequence with `output_tokens` at most: what is left of the session may be less than asked.

    `reserved`: what it may take by that.
    """

    output_tokens: int
    reserved: Spent


class Ended(NamedTuple):
    """The call passes a ceiling. `asked`, `used`, `running` and `limit` are in the ceiling's unit.

    `closes`: what was used leaves no room for it; otherwise it may fit when a running call has settled, or, where it is
    the depth, from a caller less deep.
    """

    ceiling: Ceiling
    asked: int
    used: int
    running: int
    limit: int
    closes: bool


def judge(limits: SessionLimits, used: Spent, running: Spent, call: Call) -> Admitted | Ended:
    """Whether one more call fits into a session that has `used` and whose `running` calls may take so much more.

    The answer is made no longer than what is left; a call is refused only when its prompt and one token a sequence do
    not fit. At `max_repeated_calls` times running a tool's call is refused.
    """
    if limits.max_depth is not UNSET and call.depth > limits.max_depth:
        return Ended("depth", call.depth, 0, 0, limits.max_depth, closes=False)
    if limits.max_repeated_calls is not UNSET and call.repeated >= limits.max_repeated_calls:
        return Ended("repeated_call", call.repeated, 0, 0, limits.max_repeated_calls, closes=True)
    if (ended := _passed("iterations", limits.max_iterations, 1, used.iterations, running.iterations)) is not None:
        return ended
    least = call.most(min(1, call.output_tokens))
    ended = _passed("tokens", limits.max_tokens, least.tokens, used.tokens, running.tokens) or _passed(
        "cost", limits.max_cost_micros, least.cost_micros, used.cost_micros, running.cost_micros
    )
    if ended is not None:
        return ended
    output_tokens = min([call.output_tokens, *_rooms(limits, used.plus(running), call)])
    return Admitted(output_tokens, call.most(output_tokens))


def _passed(ceiling: Ceiling, limit: int | UnsetType, asked: int, used: int, running: int) -> Ended | None:
    if limit is UNSET or used + running + asked <= limit:
        return None
    return Ended(ceiling, asked, used, running, limit, closes=used + asked > limit)


def _rooms(limits: SessionLimits, taken: Spent, call: Call) -> Iterator[int]:
    """The output tokens that each ceiling leaves to each sequence."""
    prompt = call.most(0)
    if limits.max_tokens is not UNSET:
        yield (limits.max_tokens - taken.tokens - prompt.tokens) // call.sequences
    if limits.max_cost_micros is not UNSET and call.output_cost_micros:
        left = limits.max_cost_micros - taken.cost_micros - prompt.cost_micros
        yield left // (call.sequences * call.output_cost_micros)


def near_ceilings(limits: SessionLimits, used: Spent) -> Iterator[Ceiling]:
    """The ceilings of which `used` has taken NEAR_PERMILLE or more."""
    rows: tuple[tuple[Ceiling, int | UnsetType, int], ...] = (
        ("iterations", limits.max_iterations, used.iterations),
        ("tokens", limits.max_tokens, used.tokens),
        ("cost", limits.max_cost_micros, used.cost_micros),
    )
    for ceiling, limit, amount in rows:
        if limit is not UNSET and amount * 1000 >= limit * NEAR_PERMILLE:
            yield ceiling


def holds(limits: SessionLimits, spent: Spent) -> bool:
    """Whether so many tokens and so much money are within the ceilings."""
    return (limits.max_tokens is UNSET or spent.tokens <= limits.max_tokens) and (
        limits.max_cost_micros is UNSET or spent.cost_micros <= limits.max_cost_micros
    )


@dataclass(slots=True)
class Session:
    """One session as it stands. `closed`: the ceiling that it passed, under the limits `closed_under`.

    A ceiling that a person moves opens it again. `calls`: those that ended here. Times are monotonic milliseconds.
    """

    last_used_ms: int
    used: Spent = NOTHING
    running: Spent = NOTHING
    calls: int = 0
    closed: Ended | None = None
    closed_under: SessionLimits | None = None
    near: set[Ceiling] = field(default_factory=set)

    def seen(self, used: Spent, closed: Ended | None, closed_under: SessionLimits | None) -> None:
        """Take over what was used at all places that count it together, this one included."""
        self.used = Spent(*map(max, self.used, used))
        if self.closed is None:
            self.closed, self.closed_under = closed, closed_under

    def take(self, limits: SessionLimits, call: Call, running: Spent = NOTHING) -> Admitted | Ended:
        """Reserve for one call, or say why not. `running`: what is reserved at all places, this one included."""
        if self.closed is not None and self.closed_under == limits:
            return self.closed
        self.closed = None
        verdict = judge(limits, self.used, Spent(*map(max, self.running, running)), call)
        if isinstance(verdict, Admitted):
            self.running = self.running.plus(verdict.reserved)
        elif verdict.closes:
            self.closed, self.closed_under = verdict, limits
        return verdict

    def take_more(self, limits: SessionLimits, most: Spent) -> bool:
        """Reserve more for a call that runs, if it fits."""
        if not holds(limits, self.used.plus(self.running).plus(most)):
            return False
        self.running = self.running.plus(most)
        return True

    def settle(self, reserved: Spent, taken: Spent, now_ms: int) -> None:
        """Replace what a call reserved by what it took: NOTHING where no model was asked."""
        self.running = self.running.less(reserved)
        self.used = self.used.plus(taken)
        self.calls += taken.iterations
        self.last_used_ms = max(self.last_used_ms, now_ms)

    def is_idle(self, idle_ms: int, now_ms: int) -> bool:
        """Whether nobody has used it for `idle_ms`; a call that runs uses it."""
        return self.running.iterations == 0 and now_ms - self.last_used_ms >= idle_ms
