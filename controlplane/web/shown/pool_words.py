"""Whether a pool is all right, and if not, why: facts and readings in, named reasons and one sentence out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from controlplane.web.measured import FRESH_SECONDS
from controlplane.web.shown.quantities import lasted, percent, promised

# The gravest first. `unmeasured`: it runs, and nothing is known of how. `empty`: it has no engine.
State = Literal["down", "missed", "tight", "stale", "unmeasured", "empty", "ok"]
STATES: tuple[State, ...] = ("down", "missed", "tight", "stale", "unmeasured", "empty", "ok")
# How many requests readings look back on.
WINDOW_SECONDS = 300
# One request that was unlucky says nothing of a share.
MISSES_MIN = 2
# The names of promises, in the order in which a request meets them.
PROMISES = ("ttft", "tpot", "e2e")


@dataclass(frozen=True)
class Engines:
    """How many engines a pool has. `up` take requests; people or the program keep `out` out of service."""

    up: int = 0
    down: int = 0
    out: int = 0
    unknown: int = 0

    @property
    def all(self) -> int:
        return self.up + self.down + self.out + self.unknown


@dataclass(frozen=True)
class Facts:
    """What was laid down of a pool. `promises`: seconds by name; `objective_ratio` of its requests shall keep them all.

    `kv_admit_ratio`: so full gateways make its engines' KV cache. `queue_ttl_seconds`: so long a request may wait.
    """

    name: str
    engines: Engines
    promises: Mapping[str, float] = field(default_factory=dict)
    objective_ratio: float = 0.95
    kv_admit_ratio: float = 0.9
    queue_ttl_seconds: float = 5.0


@dataclass(frozen=True)
class Reading:
    """What was measured of a pool lately: None, or not in a mapping, where it was not. Ratios are of 0 to 1.

    `kept_ratios`: by promise, the part of requests that kept it; `goodput_ratio` kept all. `failed_ratio` of requests
    failed, `refused_ratio` were turned away for want of capacity. Seconds are means of a request. `age_seconds`: of the
    newest sample of its engines.
    """

    kv_left_ratio: float | None = None
    kv_left_tokens: int | None = None
    queue_seconds: float | None = None
    engine_seconds: float | None = None
    requests_per_second: float | None = None
    goodput_ratio: float | None = None
    kept_ratios: Mapping[str, float] = field(default_factory=dict)
    failed_ratio: float | None = None
    refused_ratio: float | None = None
    age_seconds: float | None = None

    @property
    def is_empty(self) -> bool:
        return self == Reading()


class Reason(NamedTuple):
    """One reason for a state, by its name; `values` are what its sentence says."""

    state: State
    name: str
    values: Mapping[str, Any] = {}


def reasons(facts: Facts, reading: Reading) -> list[Reason]:
    """All that is not right, the gravest first; none where all is."""
    found = [*_of_engines(facts.engines), *_of_requests(facts, reading), *_of_room(facts, reading)]
    if reading.age_seconds is not None and reading.age_seconds > FRESH_SECONDS:
        found.append(Reason("stale", "stale", {"time": reading.age_seconds}))
    if reading.is_empty and facts.engines.all:
        found.append(Reason("unmeasured", "unmeasured"))
    return sorted(found, key=lambda reason: STATES.index(reason.state))


def state_of(found: list[Reason]) -> State:
    """That of the gravest reason."""
    return found[0].state if found else "ok"


def _of_engines(engines: Engines) -> Iterator[Reason]:
    if not engines.all:
        yield Reason("empty", "no_engine")
    elif not engines.up and not engines.unknown:
        yield Reason("down", "none_up", {"down": engines.down, "out": engines.out})
    elif engines.down:
        yield Reason("tight", "engines_down", {"down": engines.down, "all": engines.all})


def _of_requests(facts: Facts, reading: Reading) -> Iterator[Reason]:
    """What people feel. A share counts once as many requests as MISSES_MIN were on its wrong side."""
    requests = (reading.requests_per_second or 0.0) * WINDOW_SECONDS
    may_miss = 1 - facts.objective_ratio

    def too_many(share: float | None) -> bool:
        # Rates of counters are drawn out to the window's ends: a hair less than a whole request is one.
        return share is not None and share > may_miss and round(share * requests) >= MISSES_MIN

    if reading.goodput_ratio is not None and too_many(1 - reading.goodput_ratio):
        values = {"kept": reading.goodput_ratio, "objective": facts.objective_ratio}
        yield Reason("missed", "goodput", values)
    if too_many(reading.failed_ratio):
        yield Reason("missed", "failing", {"share": reading.failed_ratio})
    if too_many(reading.refused_ratio):
        yield Reason("tight", "refusing", {"share": reading.refused_ratio})


def _of_room(facts: Facts, reading: Reading) -> Iterator[Reason]:
    if reading.kv_left_ratio is not None and 1 - reading.kv_left_ratio >= facts.kv_admit_ratio:
        yield Reason("tight", "kv_full", {"admit": facts.kv_admit_ratio})
    # Who waits for as long as was promised for the first token cannot have it in time.
    wait_seconds = facts.promises.get("ttft", facts.queue_ttl_seconds)
    if reading.queue_seconds is not None and reading.queue_seconds >= wait_seconds:
        yield Reason("tight", "long_queue", {"time": reading.queue_seconds, "limit": wait_seconds})


def sentence(reading: Reading, engines: Engines) -> str:
    """How a pool is in a few words: what is left, how long a request waits and is worked on, what is kept out of it."""
    return ", ".join([*_measured(reading), *_kept_out(engines)])


def _kept_out(engines: Engines) -> Iterator[str]:
    """No trouble while others serve; where none does it is a reason."""
    if engines.out and (engines.up or engines.unknown):
        yield _("%(out)s of %(all)s engines kept out of service") % {"out": engines.out, "all": engines.all}


def _measured(reading: Reading) -> list[str]:
    if reading.is_empty:
        return [_("nothing is measured")]
    kv, queue, engine = reading.kv_left_ratio, reading.queue_seconds, reading.engine_seconds
    parts = [_("KV use not measured") if kv is None else _("%(share)s of KV left") % {"share": percent(kv)}]
    if reading.requests_per_second == 0 and queue is None:
        parts.append(_("no request in %(minutes)d minutes") % {"minutes": WINDOW_SECONDS // 60})
    else:
        parts += [
            _("queue not measured") if queue is None else _("queue %(time)s") % {"time": lasted(queue)},
            _("engine time not measured") if engine is None else _("engine time %(time)s") % {"time": lasted(engine)},
        ]
    return parts


def why(reason: Reason) -> str:
    """A reason as a sentence, in the reader's language."""
    said = {name: _SAID.get(name, str)(value) for name, value in reason.values.items()}
    return _(_WORDS[reason.name]) % said


_SAID: Mapping[str, Callable[[Any], str]] = {
    "kept": percent, "objective": percent, "share": percent, "admit": percent, "time": lasted, "limit": promised,
}  # fmt: skip
_WORDS = {
    "no_engine": gettext_noop("it has no engine, so its requests are refused"),
    "none_up": gettext_noop("no engine takes requests: %(down)s down, %(out)s kept out of service"),
    "engines_down": gettext_noop("%(down)s of %(all)s engines down"),
    "goodput": gettext_noop("%(kept)s of requests kept what is promised, %(objective)s shall"),
    "failing": gettext_noop("%(share)s of requests failed"),
    "refusing": gettext_noop("%(share)s of requests were turned away for want of capacity"),
    "kv_full": gettext_noop("the KV cache is full: gateways fill it to %(admit)s"),
    "long_queue": gettext_noop("a request waits %(time)s, %(limit)s is the most that it should"),
    "stale": gettext_noop("its engines were last measured %(time)s ago"),
    "unmeasured": gettext_noop("nothing is measured of it: see that its nodes' agents run"),
}
