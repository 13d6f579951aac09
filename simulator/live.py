"""An answer that a simulated engine computes token by token."""

from __future__ import annotations

from collections.abc import Callable

from simulator.answers import DONE, Identity, event
from simulator.core import EngineCore
from simulator.generation import Generator, Job
from simulator.http_server import Exchange, chunk, error_body
from simulator.metrics import EngineMetrics
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
        ended: Callable[[LiveAnswer], None],
    ) -> None:
        self._exchange, self._job, self._opening = exchange, job, identity.opening
        self._generator, self._core, self._metrics, self._ended = generator, core, metrics, ended
        now = core.now()
        self._indexes = {
            Sequence(f"{identity.id.decode()}-{index}", choice.prompt_tokens, len(choice.tokens), now): index
            for index, choice in enumerate(job.choices)
        }
        self._unfinished = len(self._indexes)

    def start(self) -> None:
        self._exchange.on_disconnect = self._abort
        if self._job.stream:
            self._exchange.start_stream()
        for sequence in self._indexes:
            self._core.submit(sequence, self._on_token)

    def fail(self, status: int, message: str) -> None:
        """End the answer with an error: a stream, whose status has left, by an error event."""
        self._leave_core()
        error = error_body(status, "InternalServerError", message)
        if self._job.stream:
            self._exchange.end_stream(chunk(b"data: %b\n\n" % error) + DONE)
        else:
            self._exchange.answer(status, error)
        self._ended(self)

    def _abort(self) -> None:
        self._leave_core()
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
            self._exchange.write_chunks(self._events(sequence, index, finished))
        if not self._unfinished:
            self._finish()

    def _events(self, sequence: Sequence, index: int, finished: bool) -> bytes:
        choice, shape = self._job.choices[index], self._job.shape
        text = self._generator.token_text(choice.tokens[sequence.generated_tokens - 1])
        token_event = event(self._opening, shape.token_event(index, text, choice.finish_reason if finished else None))
        if sequence.generated_tokens == 1 and (role := shape.role_event(index)):
            return event(self._opening, role) + token_event
        return token_event

    def _finish(self) -> None:
        job = self._job
        self._metrics.request_finished([len(choice.tokens) for choice in job.choices])
        if job.stream:
            usage = job.shape.usage_event(job.prompt_tokens, job.completion_tokens)
            self._exchange.end_stream((event(self._opening, usage) if job.include_usage else b"") + DONE)
        else:
            self._exchange.answer(200, self._opening + whole_rest(job, self._generator))
        self._ended(self)


def whole_rest(job: Job, generator: Generator) -> bytes:
    """A job's answer in one piece, after the identity."""
    choices = [(b"".join(map(generator.token_text, choice.tokens)), choice.finish_reason) for choice in job.choices]
    return job.shape.whole(choices, job.prompt_tokens, job.completion_tokens)
