"""What a what-if run is asked: lengths, arrivals, SLO, the engine's speed, and which settings to try.

`python -m simulator.what_if` reads it on standard input; the control plane fills it from what was measured.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from wire.problems import Problem, type_problems
from wire.sketches import Counts, middle_of

# A slower one has no request in any run.
RATE_MIN, RATE_MAX = 1e-4, 10_000.0
MINUTES_MAX = 31 * 24 * 60
POINTS_MAX, SEEDS_MAX, PROCESSES_MAX = 400, 16, 64
# Some 20 minutes of one core.
SIMULATED_TOKENS_MAX = 10**9
# Of one run, whose requests are all in memory in the end.
REQUESTS_MAX = 2_000_000
# Of arrivals that go on while what was measured still runs, at most.
DRAIN_SECONDS = 60.0

_Ms = Annotated[int, Meta(ge=1, le=3_600_000)]
_Seconds = Annotated[float, Meta(ge=0, le=10)]
SETTING_MAX = 2**20
_Setting = Annotated[int, Meta(ge=1, le=SETTING_MAX)]
_Settings = Annotated[list[_Setting], Meta(min_length=1, max_length=32)]
_Replicas = Annotated[list[Annotated[int, Meta(ge=1, le=256)]], Meta(min_length=1, max_length=16)]
_KvCapacities = Annotated[list[Annotated[int, Meta(ge=16, le=2**40)]], Meta(min_length=1, max_length=16)]
_Loads = Annotated[list[Annotated[float, Meta(ge=0.01, le=100)]], Meta(min_length=1, max_length=16)]
Lengths = Annotated[Counts, Meta(min_length=1)]


class Slo(Struct, frozen=True, forbid_unknown_fields=True):
    """What a request must keep to be good; null: not promised. TPOT is judged over a whole answer."""

    ttft_ms: _Ms | None = None
    tpot_ms: _Ms | None = None
    e2e_ms: _Ms | None = None


class Speed(Struct, frozen=True, forbid_unknown_fields=True):
    """How long a step of the engine takes: a base, and more for each token of prefill, each sequence that decodes, each
    token of KV cache that these read. `request_seconds`: what a request takes outside of steps, before its first token.

    The defaults are those of simulated engines: an 8B model in bf16 on one H100, by roofline arithmetic.
    """

    base_seconds: _Seconds = 0.0065
    prefill_token_seconds: _Seconds = 33e-6
    decode_sequence_seconds: _Seconds = 40e-6
    decode_kv_token_seconds: _Seconds = 0.0
    request_seconds: _Seconds = 0.0


class Arrivals(Struct, frozen=True, forbid_unknown_fields=True):
    """`minutes`: how many came in each measured minute. Each simulated minute is one of them, drawn by the seed, so
    that bursts are as measured; `rate_per_second` then scales them, and is their mean where it is null.

    `burstiness` is the shape of the gamma distribution of the gaps within a minute, as vLLM's benchmark has it: 1 is
    Poisson, less is burstier.
    """

    rate_per_second: Annotated[float, Meta(ge=RATE_MIN, le=RATE_MAX)] | None = None
    minutes: Annotated[list[Annotated[int, Meta(ge=0, le=60 * int(RATE_MAX))]], Meta(max_length=MINUTES_MAX)] = []
    burstiness: Annotated[float, Meta(ge=0.05, le=100)] = 1.0

    @property
    def mean_per_second(self) -> float:
        if self.rate_per_second is not None:
            return self.rate_per_second
        return sum(self.minutes) / len(self.minutes) / 60 if self.minutes else 0.0


class Gateway(Struct, frozen=True, forbid_unknown_fields=True):
    """What waits before the engines: `max_concurrency` requests are at them at once, of all replicas together. The
    others wait in turn, `queue_cap` of them for `queue_ttl_ms` at most; the rest are refused.
    """

    max_concurrency: Annotated[list[_Setting], Meta(min_length=1, max_length=16)]
    queue_cap: Annotated[int, Meta(ge=0, le=1_000_000)] = 64
    queue_ttl_ms: _Ms = 5000


class Ask(Struct, frozen=True, forbid_unknown_fields=True):
    """Every combination of the settings is a point, and runs with each of `loads` (times the arrivals) and each seed.

    `prompt_tokens` and `output_tokens`: counts by bucket of wire/sketches.py. Of a run, `warm_up_seconds` and then
    `measured_seconds` pass in virtual time. `processes`: 0 is one for each core but one. `limit_seconds`: of real time,
    after which it ends without a result.
    """

    prompt_tokens: Lengths
    output_tokens: Lengths
    arrivals: Arrivals
    slo: Slo
    max_num_seqs: _Settings
    max_num_batched_tokens: _Settings
    replicas: _Replicas = field(default_factory=lambda: [1])
    kv_capacity_tokens: _KvCapacities = field(default_factory=lambda: [400_000])
    gateway: Gateway | None = None
    max_model_len_tokens: Annotated[int, Meta(ge=2, le=100_000_000)] = 8192
    speed: Speed = Speed()
    loads: _Loads = field(default_factory=lambda: [1.0])
    seeds: Annotated[int, Meta(ge=1, le=SEEDS_MAX)] = 3
    warm_up_seconds: Annotated[float, Meta(ge=0, le=3600)] = 30.0
    measured_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 180.0
    processes: Annotated[int, Meta(ge=0, le=PROCESSES_MAX)] = 0
    limit_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 600


class Point(Struct, frozen=True):
    """One combination of settings. `max_concurrency`: of the gateway; null: it bounds nothing."""

    max_num_seqs: int
    max_num_batched_tokens: int
    replicas: int
    kv_capacity_tokens: int
    max_concurrency: int | None


def points(ask: Ask) -> list[Point]:
    return [
        Point(seqs, batched, replicas, kv, concurrency)
        for replicas in sorted(set(ask.replicas))
        for kv in sorted(set(ask.kv_capacity_tokens))
        for concurrency in (sorted(set(ask.gateway.max_concurrency)) if ask.gateway else [None])
        for seqs in sorted(set(ask.max_num_seqs))
        for batched in sorted(set(ask.max_num_batched_tokens))
    ]


def number_of_points(ask: Ask) -> int:
    """How many `points` there are, without making them."""
    concurrencies = ask.gateway.max_concurrency if ask.gateway else [None]
    tried = (ask.replicas, ask.kv_capacity_tokens, concurrencies, ask.max_num_seqs, ask.max_num_batched_tokens)
    return math.prod(len(set(values)) for values in tried)


class BadAsk(ValueError):
    """What is asked cannot be run; `problems` says why, each at its path."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{problem.path}: {problem.message}" for problem in problems[:10]))
        self.problems = problems


def read(document: Any) -> Ask:
    """The ask that a decoded JSON document is. Raises BadAsk with every problem."""
    try:
        ask = msgspec.convert(document, Ask)
    except UnicodeEncodeError as error:
        raise BadAsk([Problem("/", "characters", "a name or text in it holds half of a surrogate pair")]) from error
    except msgspec.ValidationError as error:
        raise BadAsk(type_problems(document, Ask)) from error
    if problems := _problems(ask):
        raise BadAsk(problems)
    return ask


def read_json(text: bytes) -> Ask:
    """The ask that a JSON text is. Raises BadAsk."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAsk([Problem("/", "malformed", f"this is no JSON: {error}")]) from error
    return read(document)


def _problems(ask: Ask) -> list[Problem]:
    found = []
    if ask.slo == Slo():
        found.append(Problem("/slo", "required", "goodput needs an SLO; give ttft_ms, tpot_ms or e2e_ms"))
    if not ask.arrivals.mean_per_second:
        message = "nothing arrives; give rate_per_second, or minutes in which something came"
        found.append(Problem("/arrivals", "required", message))
    elif ask.arrivals.minutes and not any(ask.arrivals.minutes):
        found.append(Problem("/arrivals/minutes", "range", "nothing came in any minute; leave them out"))
    peak_rate = ask.arrivals.mean_per_second * max(ask.loads)
    if peak_rate > RATE_MAX:
        found.append(Problem("/loads", "range", f"{peak_rate:,.0f} requests/s are more than {RATE_MAX:,.0f}"))
    for name in ("prompt_tokens", "output_tokens"):
        if len({bucket for bucket, _ in getattr(ask, name)}) < len(getattr(ask, name)):
            found.append(Problem(f"/{name}", "repeated", "a bucket stands there twice"))
    requests = peak_rate * (ask.warm_up_seconds + ask.measured_seconds)
    if requests > REQUESTS_MAX:
        says = f"{requests:,.0f} requests would come in one run, {REQUESTS_MAX:,} at most: give fewer, or smaller loads"
        found.append(Problem("/measured_seconds", "too_much", says))
    number = number_of_points(ask)
    if number > POINTS_MAX:
        says = f"{number} combinations of settings; {POINTS_MAX} at most, so give fewer values"
        found.append(Problem("/", "too_many_points", says))
    tokens = simulated_tokens(ask)
    if not found and tokens > SIMULATED_TOKENS_MAX:
        message = (
            f"some {tokens:.2g} tokens would be simulated, {SIMULATED_TOKENS_MAX:.0e} at most: give fewer settings, "
            "loads or seeds, or fewer measured_seconds"
        )
        found.append(Problem("/", "too_much", message))
    return found


def simulated_tokens(ask: Ask) -> float:
    """How many output tokens all runs make, about."""
    # An answer has one token at least.
    tokens = sum(max(1, middle_of(bucket)) * count for bucket, count in ask.output_tokens)
    mean = tokens / sum(count for _, count in ask.output_tokens)
    seconds = ask.warm_up_seconds + ask.measured_seconds
    requests = ask.arrivals.mean_per_second * math.fsum(ask.loads) * seconds
    return requests * mean * number_of_points(ask) * ask.seeds
