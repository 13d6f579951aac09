"""What is asked of a plan, a fan-out or a promise: one description for REST, the command and the page.

Holds no row and reads none: the command checks its arguments by it where there is no database.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f
from policy.planning.fan_out import LOAD_PERMILLE
from policy.planning.fit import UTILISATION_PERMILLE
from policy.planning.gpus import Link
from policy.planning.plan import ACCEPTABLE_WAIT_MS, SHARE_PERMILLE
from policy.planning.shapes import Quantisation

# An NVL72 is the largest that is one machine.
GPUS_PER_NODE_MAX, NODES_MAX = 72, 1000
DAYS_MAX = 30
_TOKENS_MAX, _BYTES_MAX, _BUCKETS_MAX, _CALLS_MAX = 10_000_000, 2**50, 1000, 50
_CALLS_PERMILLE_MAX = 1_000_000

Tokens = Annotated[int, Field(ge=1, le=_TOKENS_MAX)]
TokensOrNone = Annotated[int, Field(ge=0, le=_TOKENS_MAX)]
Bytes = Annotated[int, Field(ge=0, le=_BYTES_MAX)]
Days = Annotated[int, Field(ge=1, le=DAYS_MAX)]
# NaN and infinity are no rates, and what is nearly 0 has no time that a number could hold.
Rate = Annotated[float, Field(ge=0.001, le=1e12, allow_inf_nan=False)]
Label = Annotated[f.Text, Field(min_length=1, max_length=63)]


def _wrong(says: str) -> PydanticCustomError:
    return PydanticCustomError("one_of", "{says}", {"says": says})


class ModelAsked(f.Fields):
    """Either `config`, a Hugging Face config.json as it is, or `known`, a name of GET /plans/gpus' `models`."""

    config: dict[str, Any] | None = None
    known: f.ModelName | None = None

    @model_validator(mode="after")
    def _one(self) -> ModelAsked:
        if (self.config is None) == (self.known is None):
            raise _wrong("give either `config` or `known`")
        return self


class GpusAsked(f.Fields):
    """One of `known` (a GPU of the table), `memory_bytes` (another one), `fleet_node` (those of a node and its like).

    Of the last, `per_node`, `nodes` and `link` are the fleet's, unless they are given.
    """

    known: f.Text | None = None
    memory_bytes: Annotated[int, Field(ge=2**30, le=2**42)] | None = None
    bandwidth_bytes_per_second: Annotated[int, Field(ge=10**9, le=10**14)] | None = None
    bf16_flops: Annotated[int, Field(ge=10**9, le=10**17)] | None = None
    has_fp8: bool = False
    fleet_node: f.Name | None = None
    per_node: Annotated[int, Field(ge=1, le=GPUS_PER_NODE_MAX)] | None = None
    nodes: Annotated[int, Field(ge=1, le=NODES_MAX)] | None = None
    link: Link | None = None

    @model_validator(mode="after")
    def _one(self) -> GpusAsked:
        if sum(each is not None for each in (self.known, self.memory_bytes, self.fleet_node)) != 1:
            raise _wrong("give one of `known`, `memory_bytes` and `fleet_node`")
        return self


class LengthAsked(f.Fields):
    """A `mean` alone (all of one length); a `mean` and one percentile; two percentiles or more; or a `histogram`.

    Of a histogram, each length in tokens → how many.
    """

    mean: Tokens | None = None
    p50: Tokens | None = None
    p90: Tokens | None = None
    p95: Tokens | None = None
    p99: Tokens | None = None
    histogram: (
        Annotated[dict[f.Text, Annotated[int, Field(ge=1, le=2**40)]], Field(min_length=1, max_length=_BUCKETS_MAX)]
        | None
    ) = None

    @property
    def percentiles(self) -> dict[int, int]:
        given = {500: self.p50, 900: self.p90, 950: self.p95, 990: self.p99}
        return {permille: length for permille, length in given.items() if length is not None}

    @model_validator(mode="after")
    def _enough(self) -> LengthAsked:
        given = len(self.percentiles)
        if self.histogram is not None:
            if given or self.mean is not None:
                raise _wrong("give a `histogram` alone")
            for length in self.histogram:
                if not (length.isascii() and length.isdigit() and 1 <= len(length) <= 8):
                    raise _wrong('a histogram\'s names are lengths in tokens, such as "1500"')
        elif self.mean is not None and given > 1:
            raise _wrong("give a `mean` with one percentile at most, or percentiles without it")
        elif self.mean is None and given < 2:
            raise _wrong("give a `mean`, two percentiles at least, or a `histogram`")
        return self


class MeasuredAsked(f.Fields):
    """The requests that gateways counted in the last `days`, of a `pool`, a `tenant`, both, or all."""

    pool: f.Name | None = None
    tenant: f.Name | None = None
    days: Days = 7


class LengthsAsked(f.Fields):
    """`prompt` and `output`, typed; or `measured`."""

    prompt: LengthAsked | None = None
    output: LengthAsked | None = None
    measured: MeasuredAsked | None = None

    @model_validator(mode="after")
    def _one(self) -> LengthsAsked:
        typed = self.prompt is not None and self.output is not None
        if typed == (self.measured is not None) or (self.prompt is None) != (self.output is None):
            raise _wrong("give either `prompt` and `output`, or `measured`")
        return self


class RatesAsked(f.Fields):
    """Tokens a second that one GPU reads, and writes, when it does nothing else; or what `pool` did at its busiest."""

    prefill_tokens_per_second: Rate | None = None
    decode_tokens_per_second: Rate | None = None
    pool: f.Name | None = None
    days: Days = 7

    @model_validator(mode="after")
    def _one(self) -> RatesAsked:
        both = self.prefill_tokens_per_second is not None and self.decode_tokens_per_second is not None
        one = self.prefill_tokens_per_second is not None or self.decode_tokens_per_second is not None
        if both == (self.pool is not None) or both != one:
            raise _wrong("give either `prefill_tokens_per_second` and `decode_tokens_per_second`, or `pool`")
        return self


class CallRatesAsked(RatesAsked):
    """The same for a kind of model; one that writes nothing, as for embeddings, has no `decode_tokens_per_second`."""

    @model_validator(mode="after")
    def _one(self) -> CallRatesAsked:
        typed = self.prefill_tokens_per_second is not None
        if typed == (self.pool is not None) or (self.decode_tokens_per_second is not None and not typed):
            raise _wrong("give either `prefill_tokens_per_second`, with `decode_tokens_per_second`, or `pool`")
        return self


class PlanFields(f.Fields):
    """A plan. What is left out: `weights` as the file has them, `context_tokens` the model's longest, else the usual.

    `compare_model`: a model of the configuration, whose engines' own numbers are put beside; by default that of the
    name `model.known`.
    """

    model: ModelAsked
    gpus: GpusAsked
    lengths: LengthsAsked
    weights: Quantisation | None = None
    kv_cache_dtype: Literal["bf16", "fp8"] = "bf16"
    context_tokens: Tokens | None = None
    utilisation_permille: Annotated[int, Field(ge=1, le=1000)] = UTILISATION_PERMILLE
    activation_bytes: Bytes | None = None
    graph_bytes: Bytes | None = None
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    share_permille: Annotated[int, Field(ge=1, le=1000)] = SHARE_PERMILLE
    tensor_parallel: Annotated[int, Field(ge=1, le=GPUS_PER_NODE_MAX)] | None = None
    pipeline_parallel: Annotated[int, Field(ge=1, le=GPUS_PER_NODE_MAX * NODES_MAX)] | None = None
    rates: RatesAsked | None = None
    acceptable_wait_ms: Annotated[int, Field(ge=0, le=3_600_000)] = ACCEPTABLE_WAIT_MS
    tpot_slo_ms: Annotated[int, Field(ge=1, le=60_000)] | None = None
    compare_model: f.ModelName | None = None


class CallAsked(f.Fields):
    """One kind of call of a user's request; see policy.planning.fan_out.Call."""

    name: Label
    calls_permille: Annotated[int, Field(ge=1, le=_CALLS_PERMILLE_MAX)] = 1000
    prompt_tokens: TokensOrNone
    output_tokens: TokensOrNone = 0
    cached_permille: Annotated[int, Field(ge=0, le=1000)] = 0
    model: Label = "main"


class FanOutFields(f.Fields):
    """`users` × `requests_per_user_per_hour` in a mean hour, × `peak_permille` ÷ 1000 in the busiest, × `calls`.

    `rates`: model of the calls → what one of its GPUs does.
    """

    users: Annotated[int, Field(ge=1, le=10**9)]
    requests_per_user_per_hour: Rate
    peak_permille: Annotated[int, Field(ge=1, le=100_000)] = 1000
    calls: Annotated[list[CallAsked], Field(min_length=1, max_length=_CALLS_MAX)]
    rates: Annotated[dict[Label, CallRatesAsked], Field(max_length=_CALLS_MAX)] = {}
    load_permille: Annotated[int, Field(ge=1, le=1000)] = LOAD_PERMILLE
