"""Answers without scheduling and timers, for benchmarks in which the engine must not be what is measured.

A stream has as many events as tokens were asked for, each in its own chunk, and leaves in one write. Small bodies are
remembered with their rendered answer, since a load generator repeats them; id and time are set anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.answers import DONE, Identity
from simulator.generation import Generator, Job
from simulator.http_server import LAST_CHUNK, Exchange
from simulator.live import whole_rest
from simulator.metrics import EngineMetrics

MAX_REMEMBERED = 512
MAX_REMEMBERED_BODY_BYTES = 16 * 1024


@dataclass(frozen=True)
class _Rendered:
    """An answer cut where its opening (id and time) goes: `opening.join(pieces)`."""

    stream: bool
    pieces: tuple[bytes, ...]
    id_prefix: bytes
    generated: list[tuple[int, int, str]]
    max_tokens: int


class InstantAnswers:
    """Answers requests whole and at once."""

    def __init__(self, generator: Generator, metrics: EngineMetrics) -> None:
        self._generator = generator
        self._metrics = metrics
        self._remembered: dict[tuple[bool, int, bytes], _Rendered] = {}

    def answer(self, exchange: Exchange, chat: bool, request_id: bytes, created: int) -> None:
        """Raises: ApiError."""
        body = exchange.request.body
        # Chunk sizes depend on the id's length, so it is part of the key.
        key = (chat, len(request_id), body)
        rendered = self._remembered.get(key)
        if rendered is None:
            rendered = self._render(self._generator.plan(chat, body), request_id, created)
            if len(body) <= MAX_REMEMBERED_BODY_BYTES:
                if len(self._remembered) >= MAX_REMEMBERED:
                    del self._remembered[next(iter(self._remembered))]
                self._remembered[key] = rendered
        self._metrics.instant_request(rendered.generated, rendered.max_tokens)
        content = Identity(rendered.id_prefix + request_id, created).opening.join(rendered.pieces)
        if rendered.stream:
            exchange.answer_stream(content)
        else:
            exchange.answer(200, content)

    def forget(self) -> None:
        """Plan anew what was asked before."""
        self._remembered.clear()

    def _render(self, job: Job, request_id: bytes, created: int) -> _Rendered:
        shape = job.shape
        if job.stream:
            opening_bytes = len(Identity(shape.id_prefix + request_id, created).opening)
            pieces = _stream_pieces(self._events(job), opening_bytes)
        else:
            pieces = (b"", whole_rest(job, self._generator))
        generated: list[tuple[int, int, str]] = [(c.prompt_tokens, len(c.tokens), c.finish_reason) for c in job.choices]
        return _Rendered(job.stream, pieces, shape.id_prefix, generated, job.choices[0].max_tokens)

    def _events(self, job: Job) -> list[bytes]:
        shape, text = job.shape, self._generator.token_text
        events: list[bytes] = []
        for index, choice in enumerate(job.choices):
            if role := shape.role_event(index):
                events.append(role)
            events += [shape.token_event(index, text(token), None) for token in choice.tokens[:-1]]
            events.append(shape.token_event(index, text(choice.tokens[-1]), choice.finish_reason))
        if job.include_usage:
            events.append(shape.usage_event(job.prompt_tokens, job.completion_tokens))
        return events


def _stream_pieces(events: list[bytes], opening_bytes: int) -> tuple[bytes, ...]:
    heads = [b"%x\r\ndata: " % (len(b"data: \n\n") + opening_bytes + len(rest)) for rest in events]
    tails = [rest + b"\n\n\r\n" for rest in events]
    middle = [tail + head for tail, head in zip(tails, heads[1:], strict=False)]
    return (heads[0], *middle, tails[-1] + DONE + LAST_CHUNK)
