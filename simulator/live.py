"""An answer that a simulated engine computes token by token."""

from __future__ import annotations

from collections.abc import Callable

from simulator.answers import FinishReason, Identity
from simulator.core import EngineCore
from simulator.generation import Generator, Job
from simulator.http_server import Exchange, error_body
from simulator.metrics import EngineMetrics
from simulator.pathologies.engine import EngineConditions
from simulator.scheduler import Sequence


class LiveAnswer:
    """One request in the engine: its sequences, and the answer that grows from them.

    The sequences are aborted at once when the client leaves, in the queue and in prefill as well; `ended` is
    called once, however it ends.
    """

    def __init__(
        self,
        exchange: Exchange,
        job: Job,
        identity: Identity,
        generator: Generator,
        core: EngineCore,
        metrics: EngineMetrics,
        conditions: EngineConditions,
        ended: Callable[[LiveAnswer], None],
    ) -> None:
        self._exchange, self._job, self._identity = exchange, job, identity
        self._generator, self._core, self._metrics, self._ended = generator, core, metrics, ended
        self._conditions, self._is_over = conditions, False
        now = core.now()
        self._indexes = {
            Sequence(f"{identity.id.decode()}-{index}", choice.prompt_tokens, len(choice.tokens), now): index
            for index, choice in enumerate(job.choices)
        }
        self._unfinished = len(self._indexes)

    def start(self) -> None:
        self._exchange.on_disconnect = self._abort
        if self._job.stream:
            self._exchange.start_stream(self._job.shape.opening(self._identity))
        for sequence in self._indexes:
            self._core.submit(sequence, self._on_token)

    def fail(self, status: int, message: str) -> None:
        """End the answer with an error: a stream, whose status has left, by an error event."""
        self._leave_core()
        if self._job.stream:
            self._exchange.end_stream(self._job.shape.error(status, message))
        else:
            self._exchange.answer(status, error_body(status, "InternalServerError", message))
        self._end()

    def _abort(self) -> None:
        if self._conditions.heeds_cancel:
            self._leave_core()
            self._end()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._ended(self)

    def _leave_core(self) -> None:
        for sequence in self._indexes:
            self._core.abort(sequence)

    def _on_token(self, sequence: Sequence) -> None:
        index = self._indexes[sequence]
        choice = self._job.choices[index]
        finished = sequence.state == "finished"
        if finished:
            self._unfinished -= 1
            self._metrics.sequence_finished(sequence, choice.finish_reason, choice.max_tokens)
        if self._job.stream:
            events = self._events(sequence, index, finished)
            self._conditions.hand_on(lambda: self._exchange.write_chunks(events))
        if not self._unfinished:
            self._metrics.leaving += len(self._indexes)
            self._conditions.hand_on(self._finish)

    def _events(self, sequence: Sequence, index: int, finished: bool) -> bytes:
        choice, position = self._job.choices[index], sequence.generated_tokens - 1
        text = self._generator.token_text(choice.tokens[position])
        reason = choice.finish_reason if finished else None
        return self._job.shape.token(self._identity, index, position, text, reason)

    def _finish(self) -> None:
        self._metrics.leaving -= len(self._indexes)
        if self._is_over:
            return
        job = self._job
        self._metrics.request_finished([len(choice.tokens) for choice in job.choices])
        texts, counts = choice_texts(job, self._generator), (job.prompt_tokens, job.completion_tokens)
        if job.stream:
            self._exchange.end_stream(job.shape.closing(self._identity, texts, *counts, job.include_usage))
        else:
            self._exchange.answer(200, job.shape.whole(self._identity, texts, *counts))
        self._end()


def choice_texts(job: Job, generator: Generator) -> list[tuple[bytes, FinishReason]]:
    """The text of each choice, as the inside of a JSON string, and why it ends."""
    return [(b"".join(map(generator.token_text, choice.tokens)), choice.finish_reason) for choice in job.choices]
