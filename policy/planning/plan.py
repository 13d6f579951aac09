"""A capacity plan: a model, machines, a distribution of lengths → memory, concurrency, settings, waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from policy.capacity import Concurrency, Lengths, derive_max_num_seqs, longest_of
from policy.kv import Dtype, Sharding, sequence_bytes
from policy.planning import lengths as of_lengths
from policy.planning.fit import UTILISATION_PERMILLE, Allowance, Fit, Serving, fit, usual_allowance
from policy.planning.gpus import Machines
from policy.planning.parallel import Choice, Option, choose, options
from policy.planning.remedies import Remedy, remedies
from policy.planning.shapes import ModelShape, Quantisation
from policy.planning.speed import Rates, estimated
from policy.planning.start import Value, batched_tokens, sequences
from policy.planning.waits import Wait, waits
from policy.queue import queue_cap

SHARE_PERMILLE = 950
ACCEPTABLE_WAIT_MS = 5000
RatesFrom = Literal["typed", "measured", "estimated"]


@dataclass(frozen=True)
class Ask:
    """What is planned. `prompts` and `outputs`: counts of lengths by bucket (wire/sketches.py).

    `tensor_parallel`, `pipeline_parallel`: where a person has chosen; else the tree does. `rates`: of one GPU, typed or
    measured; else the data sheet's ceiling is taken. `share_permille`: with what probability a full batch shall fit.
    """

    shape: ModelShape
    machines: Machines
    weights: Quantisation
    kv_dtype: Dtype
    context_tokens: int
    prompts: Lengths
    outputs: Lengths
    utilisation_permille: int = UTILISATION_PERMILLE
    allowance: Allowance | None = None
    batched_tokens: int | None = None
    share_permille: int = SHARE_PERMILLE
    sharding: Sharding | None = None
    rates: Rates | None = None
    rates_from: RatesFrom = "estimated"
    acceptable_wait_ms: int = ACCEPTABLE_WAIT_MS
    tpot_ms: int | None = None


@dataclass(frozen=True)
class Start:
    """How an engine is started, and what it then serves; rates are of one replica, waits of all together.

    `requests_per_second` and what follows from it are None where no rate is known.
    """

    concurrency: Concurrency
    max_num_seqs: Value
    max_num_batched_tokens: Value
    mean_context_tokens: float
    rates: Rates | None
    rates_from: RatesFrom
    requests_per_second: float | None
    queue_cap: Value | None
    waits: list[Wait]


@dataclass(frozen=True)
class Plan:
    """`chosen` is None where nothing fits; `remedies` then say what would."""

    serving: Serving
    total_weights_bytes: int
    choice: Choice
    chosen: Option | None
    options: list[Option]
    remedies: list[Remedy]
    start: Start | None


def make(ask: Ask) -> Plan:
    """Raises: ValueError where no length was given, or the model cannot be split as asked."""
    memory = ask.machines.gpu.memory_bytes
    allowance = ask.allowance or usual_allowance(memory)
    usual = batched_tokens(ask.machines.gpu)
    if ask.batched_tokens is not None:
        usual = Value(ask.batched_tokens, "as given")
    serving = Serving(ask.weights, ask.kv_dtype, ask.context_tokens, usual.value, allowance, ask.utilisation_permille)
    choice = choose(ask.shape, serving, ask.machines)
    found = options(ask.shape, serving, ask.machines)
    chosen = choice.option if ask.sharding is None else _as_asked(found, ask.sharding, ask.shape)
    fits = chosen is not None and chosen.fit.fits
    return Plan(
        serving=serving,
        total_weights_bytes=fit(ask.shape, serving, memory).weights_bytes,
        choice=choice,
        chosen=chosen if fits else None,
        options=found,
        remedies=[] if fits else remedies(ask.shape, serving, ask.machines),
        start=_start(ask, serving, chosen, usual) if fits and chosen is not None else None,
    )


def _as_asked(found: list[Option], sharding: Sharding, shape: ModelShape) -> Option:
    chosen = next((each for each in found if each.fit.sharding == sharding), None)
    if chosen is None or not chosen.replicas:
        degrees = f"tensor parallel {sharding.tensor_parallel} × pipeline {sharding.pipeline_parallel}"
        numbers = f"{shape.divided[0]} attention heads, {shape.kv_heads} key/value heads, {len(shape.layers)} layers"
        raise ValueError(f"{degrees} does not share out {numbers}, or the machines have no room for it")
    return chosen


def _start(ask: Ask, serving: Serving, chosen: Option, usual: Value) -> Start:
    one: Fit = chosen.fit
    contexts = of_lengths.at_most(of_lengths.contexts(ask.prompts, ask.outputs), ask.context_tokens)

    def size(tokens: int) -> int:
        held = min(tokens, ask.context_tokens)
        return sequence_bytes(ask.shape.kv, held, ask.kv_dtype, one.sharding, block_tokens=serving.block_tokens)

    carried = derive_max_num_seqs(one.kv_budget_bytes, contexts, size, ask.share_permille)
    total = sum(contexts.values())
    per_sequence = sum(size(longest_of(bucket)) * count for bucket, count in contexts.items()) / total
    max_num_seqs = sequences(carried, ask.share_permille, usual.value)
    gpus = one.sharding.gpus
    rates, rates_from = ask.rates, ask.rates_from
    if rates is None:
        rates, rates_from = (
            estimated(
                ask.shape, ask.weights, ask.machines.gpu,
                gpus=gpus, sequences=max_num_seqs.value, bytes_per_sequence=per_sequence,
            ),
            "estimated",
        )  # fmt: skip
    batched = usual
    if ask.batched_tokens is None:
        prefill = None if rates is None else rates.prefill_tokens_per_second * gpus
        batched = batched_tokens(ask.machines.gpu, tpot_ms=ask.tpot_ms, prefill_tokens_per_second=prefill)
        max_num_seqs = sequences(carried, ask.share_permille, batched.value)
    served = None
    if rates is not None:
        prompt, output = of_lengths.mean_tokens(ask.prompts), of_lengths.mean_tokens(ask.outputs)
        served = rates.requests_per_second(prompt, output) * gpus
    return Start(
        concurrency=carried,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=batched,
        mean_context_tokens=of_lengths.mean_tokens(contexts),
        rates=rates,
        rates_from=rates_from,
        requests_per_second=served,
        queue_cap=None if served is None else _queue_cap(served * chosen.replicas, ask.acceptable_wait_ms),
        waits=[] if served is None else waits(served * chosen.replicas),
    )


def _queue_cap(served: float, acceptable_wait_ms: int) -> Value:
    cap = queue_cap(served, acceptable_wait_ms)
    why = f"{served:.2f} requests a second over all replicas × {acceptable_wait_ms / 1000:g} s that a client will wait"
    return Value(cap, why)
