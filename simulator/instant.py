"""Answers without scheduling and timers, for benchmarks in which the engine must not be what is measured.

A stream has as many events as tokens were asked for, each in its own chunk, and leaves in one write. Small bodies are
remembered with their rendered answer, since a load generator repeats them; id and time are set anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.answers import DONE, ChoicesShape, Identity
from simulator.generation import Api, Generator, Job
from simulator.http_server import LAST_CHUNK, Exchange
from simulator.live import choice_texts
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
        self._remembered: dict[tuple[Api, int, bytes], _Rendered] = {}

    def answer(self, exchange: Exchange, api: Api, request_id: bytes, created: int) -> None:
        """Raises: ApiError."""
        body = exchange.request.body
        # Chunk sizes depend on the id's length, so it is part of the key.
        key = (api, len(request_id), body)
        rendered = self._remembered.get(key)
        if rendered is None:
            job = self._generator.plan(api, body)
            if not isinstance(job.shape, ChoicesShape):
                self._answer_anew(exchange, job, Identity(job.shape.id_prefix + request_id, created))
                return
            rendered = self._render(job, job.shape, request_id, created)
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

    def _answer_anew(self, exchange: Exchange, job: Job, identity: Identity) -> None:
        """An answer of an API whose id stands in several places."""
        self._metrics.instant_request(_generated(job), job.choices[0].max_tokens)
        shape, texts = job.shape, choice_texts(job, self._generator)
        counts = (job.prompt_tokens, job.completion_tokens)
        if not job.stream:
            exchange.answer(200, shape.whole(identity, texts, *counts))
            return
        chunks = [shape.opening(identity)]
        for index, choice in enumerate(job.choices):
            last = len(choice.tokens) - 1
            for position, token in enumerate(choice.tokens):
                reason = choice.finish_reason if position == last else None
                chunks.append(shape.token(identity, index, position, self._generator.token_text(token), reason))
        chunks.append(shape.closing(identity, texts, *counts, job.include_usage))
        exchange.answer_stream(b"".join(chunks) + LAST_CHUNK)

    def _render(self, job: Job, shape: ChoicesShape, request_id: bytes, created: int) -> _Rendered:
        if job.stream:
            opening_bytes = len(Identity(shape.id_prefix + request_id, created).opening)
            pieces = _stream_pieces(self._events(job, shape), opening_bytes)
        else:
            texts = choice_texts(job, self._generator)
            pieces = (b"", shape.whole_rest(texts, job.prompt_tokens, job.completion_tokens))
        return _Rendered(job.stream, pieces, shape.id_prefix, _generated(job), job.choices[0].max_tokens)

    def _events(self, job: Job, shape: ChoicesShape) -> list[bytes]:
        text = self._generator.token_text
        events: list[bytes] = []
        for index, choice in enumerate(job.choices):
            if role := shape.role_event(index):
                events.append(role)
            events += [shape.token_event(index, text(token), None) for token in choice.tokens[:-1]]
            events.append(shape.token_event(index, text(choice.tokens[-1]), choice.finish_reason))
        if job.include_usage:
            events.append(shape.usage_event(job.prompt_tokens, job.completion_tokens))
        return events


def _generated(job: Job) -> list[tuple[int, int, str]]:
    return [(choice.prompt_tokens, len(choice.tokens), choice.finish_reason) for choice in job.choices]


def _stream_pieces(events: list[bytes], opening_bytes: int) -> tuple[bytes, ...]:
    heads = [b"%x\r\ndata: " % (len(b"data: \n\n") + opening_bytes + len(rest)) for rest in events]
    tails = [rest + b"\n\n\r\n" for rest in events]
    middle = [tail + head for tail, head in zip(tails, heads[1:], strict=False)]
    return (heads[0], *middle, tails[-1] + DONE + LAST_CHUNK)
