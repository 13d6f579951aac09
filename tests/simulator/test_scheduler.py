"""The scheduler's promises over any workload: blocks conserved, everyone ends, nobody starves, same in same out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.scheduler import BLOCK_TOKENS, Limits, Scheduler, Sequence, Step, StepCost, Token


@dataclass(frozen=True)
class Arrival:
    gap_seconds: float
    prompt_tokens: int
    output_tokens: int
    abort_after_steps: int | None


@dataclass
class Run:
    """A workload in virtual time. `planned` yields after each plan, `completed` after each complete."""

    limits: Limits
    arrivals: list[Arrival]
    now: float = 0.0
    sequences: list[Sequence] = field(default_factory=list)
    tokens: list[tuple[str, float]] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.limits, StepCost())

    def steps_taken(self) -> Iterator[tuple[Step, list[Token]]]:
        pending = list(self.arrivals)
        due = pending[0].gap_seconds if pending else 0.0
        while pending or self.scheduler.running or self.scheduler.waiting:
            while pending and due <= self.now:
                arrival = pending.pop(0)
                number = str(len(self.sequences))
                sequence = Sequence(number, arrival.prompt_tokens, arrival.output_tokens, self.now)
                self.sequences.append(sequence)
                self.scheduler.submit(sequence)
                due += pending[0].gap_seconds if pending else 0.0
            step = self.scheduler.plan(self.now)
            if step is None:
                assert not self.scheduler.waiting, "the head of an empty engine's queue must be admitted"
                self.now = due
                continue
            for sequence, arrival in zip(self.sequences, self.arrivals, strict=False):
                if arrival.abort_after_steps is not None and self.steps >= arrival.abort_after_steps:
                    self.scheduler.abort(sequence)
            self.now += step.duration_seconds
            self.steps += 1
            tokens = self.scheduler.complete(step, self.now)
            self.tokens += [(token.sequence.id, self.now) for token in tokens]
            yield step, tokens

    def finish(self) -> Run:
        for _ in self.steps_taken():
            pass
        return self


@st.composite
def workloads(draw: st.DrawFn, aborts: bool = True) -> Run:
    model_len = draw(st.integers(2, 300))
    max_num_seqs = draw(st.integers(1, 8))
    least_tokens = -(-model_len // BLOCK_TOKENS) * BLOCK_TOKENS
    limits = Limits(
        kv_capacity_tokens=least_tokens + draw(st.integers(0, 400)),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + draw(st.integers(0, 100)),
        max_model_len_tokens=model_len,
    )
    arrivals = []
    for _ in range(draw(st.integers(1, 12))):
        prompt_tokens = draw(st.integers(1, model_len - 1))
        arrivals.append(
            Arrival(
                gap_seconds=draw(st.floats(0, 0.05)),
                prompt_tokens=prompt_tokens,
                output_tokens=draw(st.integers(1, model_len - prompt_tokens)),
                abort_after_steps=draw(st.none() | st.integers(0, 40)) if aborts else None,
            )
        )
    return Run(limits, arrivals)


@given(workloads())
def test_blocks_are_conserved_and_cover_what_is_computed(run: Run) -> None:
    capacity = run.limits.capacity_blocks
    for _ in run.steps_taken():
        held = sum(sequence.blocks for sequence in run.scheduler.running)
        assert run.scheduler.free_blocks >= 0
        assert run.scheduler.free_blocks + held == capacity
        assert all(sequence.blocks == 0 for sequence in run.scheduler.waiting)
        assert all(s.computed_tokens <= s.blocks * BLOCK_TOKENS for s in run.scheduler.running)
    assert run.scheduler.free_blocks == capacity


@given(workloads())
def test_a_batch_stays_within_its_limits(run: Run) -> None:
    for step, _ in run.steps_taken():
        scheduled = sum(tokens for _, tokens in step.work)
        assert 0 < scheduled <= run.limits.max_num_batched_tokens
        assert scheduled == step.prefill_tokens + step.decode_sequences
        assert len(step.work) <= run.limits.max_num_seqs
        assert all(tokens > 0 for _, tokens in step.work)


@given(workloads())
def test_every_sequence_ends_with_exactly_the_asked_length(run: Run) -> None:
    run.finish()
    for sequence, arrival in zip(run.sequences, run.arrivals, strict=True):
        counted = sum(1 for name, _ in run.tokens if name == sequence.id)
        assert counted == sequence.generated_tokens
        if arrival.abort_after_steps is None:
            assert sequence.state == "finished"
            assert counted == arrival.output_tokens
        else:
            assert sequence.state in ("finished", "aborted")


@given(workloads(aborts=False))
def test_the_oldest_sequence_is_never_preempted_and_gets_a_part_of_every_step(run: Run) -> None:
    for step, _ in run.steps_taken():
        oldest = min(step.work, key=lambda item: int(item[0].id))[0]
        assert step.work[0][0] is oldest
        assert all(int(oldest.id) < int(waiting.id) for waiting in run.scheduler.waiting)
    assert run.sequences[0].preemptions == 0


@given(workloads(aborts=False))
def test_first_tokens_come_in_order_of_arrival(run: Run) -> None:
    run.finish()
    firsts = [sequence.first_token_at for sequence in run.sequences]
    assert firsts == sorted(firsts)


@given(workloads())
def test_decodes_stand_before_the_prefill_that_is_cut(run: Run) -> None:
    for step, tokens in run.steps_taken():
        produced = {token.sequence.id for token in tokens}
        cut = [place for place, (s, _) in enumerate(step.work) if s.state == "running" and s.id not in produced]
        assert cut in ([], [len(step.work) - 1]), "only the last of a batch may be a partial prefill"


@given(workloads())
def test_the_same_workload_gives_the_same_tokens_at_the_same_times(run: Run) -> None:
    again = Run(run.limits, run.arrivals).finish()
    assert run.finish().tokens == again.tokens


def test_a_short_memory_preempts_the_last_admitted_and_computes_it_again() -> None:
    limits = Limits(kv_capacity_tokens=128, max_num_seqs=4, max_num_batched_tokens=256, max_model_len_tokens=128)
    run = Run(limits, [Arrival(0, 48, 60, None), Arrival(0, 48, 60, None)])
    prefilled = sum(step.prefill_tokens for step, _ in run.steps_taken())
    first, second = run.sequences
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert prefilled > 96, "the preempted context was computed twice"
    assert second.generated_tokens == 60


def test_a_long_prompt_is_cut_into_chunks_beside_which_decodes_go_on() -> None:
    limits = Limits(kv_capacity_tokens=4096, max_num_seqs=4, max_num_batched_tokens=64, max_model_len_tokens=2048)
    run = Run(limits, [Arrival(0, 16, 40, None), Arrival(0.01, 640, 1, None)])
    mixed = [step for step, _ in run.steps_taken() if step.decode_sequences and step.prefill_tokens]
    assert len(mixed) >= 10
    assert all(step.prefill_tokens <= 63 for step in mixed)


def test_an_abort_in_the_middle_of_a_step_frees_its_blocks_at_once() -> None:
    scheduler = Scheduler(Limits(), StepCost())
    sequence = Sequence("a", 1000, 10, 0.0)
    scheduler.submit(sequence)
    step = scheduler.plan(0.0)
    assert step is not None
    assert scheduler.kv_usage_ratio > 0
    scheduler.abort(sequence)
    assert scheduler.kv_usage_ratio == 0
    assert scheduler.complete(step, 1.0) == []
    scheduler.abort(sequence)
    assert scheduler.free_blocks == scheduler.limits.capacity_blocks


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"kv_capacity_tokens": 8191}, "raise the capacity or lower max_model_len"),
        ({"max_num_batched_tokens": 255}, "at least max_num_seqs"),
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1"),
    ],
)
def test_limits_that_could_never_serve_are_refused(bounds: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Limits(**bounds)


@pytest.mark.parametrize(("prompt_tokens", "output_tokens"), [(0, 1), (1, 0), (8192, 1)])
def test_a_sequence_that_could_never_end_is_refused(prompt_tokens: int, output_tokens: int) -> None:
    with pytest.raises(ValueError, match="sequence x"):
        Scheduler(Limits(), StepCost()).submit(Sequence("x", prompt_tokens, output_tokens, 0.0))


def test_a_step_costs_its_base_its_prefill_and_its_decodes() -> None:
    cost = StepCost(base_seconds=1.0, prefill_token_seconds=0.1, decode_sequence_seconds=0.01)
    assert cost.step_seconds(prefill_tokens=3, decode_sequences=2) == pytest.approx(1.32)
