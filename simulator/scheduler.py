"""The scheduler of a simulated engine: KV blocks, continuous batching, chunked prefill, preemption by recompute.

Pure and deterministic: time comes in, nothing goes out. One step is `plan` (choose the batch, take its
blocks, say how long it runs) and then `complete` (its tokens exist). It follows vLLM V1: running sequences
first in order of admission, so that decodes precede the one prefill that may be cut into chunks; then first
come, first served from the waiting queue; when a running sequence finds no block, the last admitted one
loses all of its own and starts anew from the head of the queue.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal, NamedTuple

BLOCK_TOKENS = 16


@dataclass(frozen=True)
class StepCost:
    """How long one step takes, in seconds. A model, not a measurement.

    The defaults resemble an 8B model in bf16 on one H100 by roofline arithmetic: `base` is 16 GB of weights
    read at 3.35 TB/s plus launch overhead; a prefill token is 2 * 8e9 operations at half of the peak; a
    decode sequence reads the KV cache of about 1,000 tokens of 128 KiB. Where that is counted by the token,
    `decode_kv_token_seconds` says so: simulator/fit.py finds both for an engine that was measured.
    """

    base_seconds: float = 0.0065
    prefill_token_seconds: float = 33e-6
    decode_sequence_seconds: float = 40e-6
    decode_kv_token_seconds: float = 0.0

    def step_seconds(self, prefill_tokens: int, decode_sequences: int, decode_kv_tokens: int = 0) -> float:
        return (
            self.base_seconds
            + self.prefill_token_seconds * prefill_tokens
            + self.decode_sequence_seconds * decode_sequences
            + self.decode_kv_token_seconds * decode_kv_tokens
        )


@dataclass(frozen=True)
class Limits:
    """What bounds a batch. `kv_capacity_tokens` is rounded down to whole blocks.

    Raises: ValueError for bounds that vLLM refuses to start with.
    """

    kv_capacity_tokens: int = 400_000
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len_tokens: int = 8192

    def __post_init__(self) -> None:
        for name in ("kv_capacity_tokens", "max_num_seqs", "max_num_batched_tokens", "max_model_len_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} must be at least max_num_seqs "
                f"{self.max_num_seqs}: each running sequence needs one token of a step"
            )
        if self.max_model_len_tokens > self.capacity_blocks * BLOCK_TOKENS:
            raise ValueError(
                f"a sequence of max_model_len {self.max_model_len_tokens} tokens needs more than the KV cache of "
                f"{self.capacity_blocks * BLOCK_TOKENS} tokens; raise the capacity or lower max_model_len"
            )

    @property
    def capacity_blocks(self) -> int:
        return self.kv_capacity_tokens // BLOCK_TOKENS


@dataclass(eq=False, slots=True)
class Sequence:
    """One answer being made: a request has n of them. `output_tokens` is the length it will have. Times in seconds.

    A `pooled` one is a prompt alone: it ends in the step that would make its only token.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    arrived_at: float
    state: Literal["waiting", "running", "finished", "aborted"] = "waiting"
    generated_tokens: int = 0
    computed_tokens: int = 0
    blocks: int = 0
    preemptions: int = 0
    scheduled_at: float = 0.0
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    pooled: bool = False

    @property
    def context_tokens(self) -> int:
        return self.prompt_tokens + self.generated_tokens


class Token(NamedTuple):
    """A token that a step produced. `gap_seconds` is the time since the one before; None for the first."""

    sequence: Sequence
    gap_seconds: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """One planned iteration: how many tokens of which sequence, and how long it takes."""

    work: list[tuple[Sequence, int]]
    prefill_tokens: int
    decode_sequences: int
    preemptions: int
    duration_seconds: float


class Scheduler:
    """Chooses batches under `limits`.

    `free_blocks` + the blocks of running sequences + those that are withheld is always the capacity.
    """

    def __init__(self, limits: Limits, cost: StepCost) -> None:
        self.limits = limits
        self.cost = cost
        self.free_blocks = limits.capacity_blocks
        self.withheld_blocks = self._to_withhold = 0
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()

    @property
    def kv_usage_ratio(self) -> float:
        return 1 - self.free_blocks / self.limits.capacity_blocks

    def withhold(self, share: float) -> None:
        """Keep that share of the capacity from all sequences, as blocks that leaked: what is held, once it is free."""
        self._to_withhold = int(share * self.limits.capacity_blocks)
        self._give(0)

    def submit(self, sequence: Sequence) -> None:
        """Put a new sequence at the end of the queue.

        Raises: ValueError when it could never end: nothing to compute, or longer than the model's length.
        """
        if sequence.prompt_tokens < 1 or sequence.output_tokens < 1:
            raise ValueError(f"sequence {sequence.id} needs at least one prompt token and one output token")
        total = sequence.prompt_tokens + sequence.output_tokens
        if total > self.limits.max_model_len_tokens:
            raise ValueError(
                f"sequence {sequence.id} of {total} tokens is longer than {self.limits.max_model_len_tokens}"
            )
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Forget a sequence and free its blocks at once, also in the middle of a step. Nothing when it has ended."""
        if sequence.state == "running":
            self.running.remove(sequence)
        elif sequence.state == "waiting":
            self.waiting.remove(sequence)
        else:
            return
        sequence.state = "aborted"
        self._release(sequence)

    def plan(self, now: float) -> Step | None:
        """Choose the next batch and take its blocks; None when there is nothing to do. `now` in seconds."""
        budget = self.limits.max_num_batched_tokens
        work: list[tuple[Sequence, int]] = []
        preemptions = 0
        while len(work) < len(self.running) and budget:
            sequence = self.running[len(work)]
            tokens = min(sequence.context_tokens - sequence.computed_tokens, budget)
            while not self._take_blocks(sequence, tokens):
                preemptions += 1
                if self._preempt_last() is sequence:
                    break
            else:
                work.append((sequence, tokens))
                budget -= tokens
        # A preemption says that memory is short: nobody new in this step.
        while not preemptions and self.waiting and budget and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting[0]
            # The whole context must fit, else sequences admitted by their first chunk preempt each other in turn
            # (vLLM: scheduler_reserve_full_isl, on by default).
            if _blocks(sequence.context_tokens) > self.free_blocks:
                break
            tokens = min(sequence.context_tokens, budget)
            self._take_blocks(sequence, tokens)
            self.running.append(self.waiting.popleft())
            sequence.state = "running"
            if not sequence.preemptions:
                sequence.scheduled_at = now
            work.append((sequence, tokens))
            budget -= tokens
        if not work:
            return None
        decoding = [sequence.computed_tokens for sequence, _ in work if _is_decode(sequence)]
        decodes = len(decoding)
        prefill_tokens = self.limits.max_num_batched_tokens - budget - decodes
        seconds = self.cost.step_seconds(prefill_tokens, decodes, sum(decoding))
        return Step(work, prefill_tokens, decodes, preemptions, seconds)

    def complete(self, step: Step, now: float) -> list[Token]:
        """The step has run until `now`: the tokens it produced, in the batch's order. Ended ones free their blocks."""
        tokens: list[Token] = []
        ended = False
        for sequence, computed in step.work:
            if sequence.state != "running":
                continue
            sequence.computed_tokens += computed
            if sequence.computed_tokens < sequence.context_tokens:
                continue
            gap = now - sequence.last_token_at if sequence.generated_tokens else None
            if gap is None:
                sequence.first_token_at = now
            sequence.generated_tokens += 1
            sequence.last_token_at = now
            tokens.append(Token(sequence, gap))
            if sequence.generated_tokens == sequence.output_tokens:
                sequence.state = "finished"
                self._release(sequence)
                ended = True
        if ended:
            self.running = [sequence for sequence in self.running if sequence.state == "running"]
        return tokens

    def _take_blocks(self, sequence: Sequence, tokens: int) -> bool:
        wanted = _blocks(sequence.computed_tokens + tokens) - sequence.blocks
        if wanted > self.free_blocks:
            return False
        self.free_blocks -= wanted
        sequence.blocks += wanted
        return True

    def _release(self, sequence: Sequence) -> None:
        self._give(sequence.blocks)
        sequence.blocks = 0

    def _give(self, blocks: int) -> None:
        """So many blocks are free again; what is still to be withheld is taken of all that are."""
        self.free_blocks += blocks
        taken = min(self._to_withhold - self.withheld_blocks, self.free_blocks)
        self.withheld_blocks += taken
        self.free_blocks -= taken

    def _preempt_last(self) -> Sequence:
        victim = self.running.pop()
        self._release(victim)
        victim.state = "waiting"
        victim.computed_tokens = 0
        victim.preemptions += 1
        self.waiting.appendleft(victim)
        return victim


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


def _is_decode(sequence: Sequence) -> bool:
    return sequence.generated_tokens > 0 and sequence.computed_tokens == sequence.context_tokens - 1
