"""Values to start an engine with, and why: how many sequences, how many tokens a step, how long a queue.

Source: seed 1, sections 1, 2, 4 and 8; vLLM's `EngineArgs` for what it takes itself on GPUs of 70 GiB and more.
"""

from __future__ import annotations

from typing import NamedTuple

from policy.capacity import Concurrency
from policy.planning.gpus import Gpu

# vLLM's own for a server, on GPUs of this memory and on smaller ones, as which an A100 of any memory counts.
BATCHED_TOKENS_LARGE, BATCHED_TOKENS_SMALL = 8192, 2048
_LARGE_BYTES, _COUNTS_AS_SMALL = 70 * 2**30, "a100"
# Beyond it a step is bound by arithmetic on any GPU, and more at once only makes each slower.
SEQUENCES_MAX = 1024
_STEP_MULTIPLE = 256
_MS_PER_SECOND = 1000


class Value(NamedTuple):
    """A number for an engine's command line, and why it is this one."""

    value: int
    why: str


def batched_tokens(gpu: Gpu, *, tpot_ms: int | None = None, prefill_tokens_per_second: float | None = None) -> Value:
    """`max_num_batched_tokens`: of a step, in which prompts are read beside each running sequence's next token.

    `prefill_tokens_per_second`: of the whole engine. With both, a full step lasts no longer than `tpot_ms`.
    """
    large, an_a100 = gpu.memory_bytes >= _LARGE_BYTES, _COUNTS_AS_SMALL in gpu.name.lower()
    usual = BATCHED_TOKENS_LARGE if large and not an_a100 else BATCHED_TOKENS_SMALL
    kind = "an A100" if an_a100 else f"a GPU of {'70 GiB or more' if large else 'less than 70 GiB'}"
    why = f"what vLLM takes itself on {kind}"
    if tpot_ms is None or prefill_tokens_per_second is None:
        return Value(usual, f"{why}; smaller steadies TPOT, larger shortens TTFT")
    within = int(prefill_tokens_per_second * tpot_ms / _MS_PER_SECOND) // _STEP_MULTIPLE * _STEP_MULTIPLE
    if within >= usual:
        return Value(usual, f"{why}; a step of it is read within the TPOT of {tpot_ms} ms")
    least = max(_STEP_MULTIPLE, within)
    return Value(
        least, f"a step of more would take longer than the TPOT of {tpot_ms} ms; TTFT of long prompts pays for it"
    )


def sequences(concurrency: Concurrency, share_permille: int, batched: int) -> Value:
    """`max_num_seqs`: what the KV cache carries with the asked probability, each step having a token for all of it."""
    bound = min(SEQUENCES_MAX, batched)
    if concurrency.for_share > bound:
        limit = "max_num_batched_tokens" if bound == batched else "where arithmetic binds a step on any GPU"
        return Value(bound, f"the KV cache would carry {concurrency.for_share}; {bound} is {limit}")
    share = f"{share_permille / 10:g} %"
    return Value(
        max(1, concurrency.for_share),
        f"a full batch fits with at least {share} probability; by the mean alone it would be {concurrency.on_average}, "
        f"and of the longest {concurrency.worst_case}",
    )
