"""From people to GPUs: what one request of a user sets off, in calls, in tokens read and in tokens written.

Source: seed 1, section 13: a plan counts model calls and tokens, not requests of users; section 4: prefill and decode
are bound by different parts of a GPU, and are counted apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from policy.planning.speed import Rates

# Of what GPUs can do, planned with: at 80 % a request waits 4 service times on average.
LOAD_PERMILLE = 800
_SECONDS_PER_HOUR = 3600


class Call(NamedTuple):
    """One kind of call that a user's request sets off `calls_permille` ÷ 1000 times on average.

    `prompt_tokens`, `output_tokens`: means of one call; an embedding or reranking writes none. `cached_permille`: of
    the prompt, what a prefix cache spares reading. `model`: which GPUs do it.
    """

    name: str
    calls_permille: int
    prompt_tokens: int
    output_tokens: int
    cached_permille: int
    model: str


class Demand(NamedTuple):
    """Of one kind of call, or of one model. GPUs are fractions, of GPUs at the planned load; None without a rate."""

    name: str
    model: str
    calls_per_second: float
    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    prefill_gpus: float | None
    decode_gpus: float | None


class ModelDemand(NamedTuple):
    """`gpus`: whole ones that do both; None without a rate."""

    demand: Demand
    gpus: int | None


class FanOut(NamedTuple):
    """`calls_per_request`: what a request of a user is multiplied by."""

    requests_per_second: float
    calls_per_request: float
    calls: list[Demand]
    models: list[ModelDemand]


def requests_per_second(users: int, requests_per_user_per_hour: float, peak_permille: int) -> float:
    """In the busiest hour: `peak_permille` ÷ 1000 times the mean one."""
    return users * requests_per_user_per_hour / _SECONDS_PER_HOUR * peak_permille / 1000


def fan_out(
    requests: float, calls: Sequence[Call], rates: Mapping[str, Rates], load_permille: int = LOAD_PERMILLE
) -> FanOut:
    """`requests`: of users, a second. `rates`: model → tokens a second of one of its GPUs."""
    found = [_demand(call, requests, rates.get(call.model), load_permille / 1000) for call in calls]
    models = dict.fromkeys(call.model for call in calls)
    return FanOut(
        requests_per_second=requests,
        calls_per_request=sum(call.calls_permille for call in calls) / 1000,
        calls=found,
        models=[_of_model(model, [each for each in found if each.model == model]) for model in models],
    )


def _demand(call: Call, requests: float, rates: Rates | None, load: float) -> Demand:
    a_second = requests * call.calls_permille / 1000
    read = a_second * call.prompt_tokens * (1000 - call.cached_permille) / 1000
    written = a_second * call.output_tokens
    return Demand(
        name=call.name,
        model=call.model,
        calls_per_second=a_second,
        prefill_tokens_per_second=read,
        decode_tokens_per_second=written,
        prefill_gpus=None if rates is None else read / rates.prefill_tokens_per_second / load,
        decode_gpus=None if rates is None else written / rates.decode_tokens_per_second / load,
    )


def _of_model(model: str, calls: Sequence[Demand]) -> ModelDemand:
    reading = _sum([each.prefill_gpus for each in calls])
    writing = _sum([each.decode_gpus for each in calls])
    total = Demand(
        name=model,
        model=model,
        calls_per_second=sum(each.calls_per_second for each in calls),
        prefill_tokens_per_second=sum(each.prefill_tokens_per_second for each in calls),
        decode_tokens_per_second=sum(each.decode_tokens_per_second for each in calls),
        prefill_gpus=reading,
        decode_gpus=writing,
    )
    # Rounded to a millionth first: a sum that is whole on paper must not need one more by binary fractions.
    gpus = None if reading is None or writing is None else math.ceil(round(reading + writing, 6))
    return ModelDemand(total, gpus)


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
