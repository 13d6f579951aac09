"""`POST /v1/embeddings` and `/v1/rerank`: work that is a prompt alone. Every input is one sequence in the engine."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from simulator.core import EngineCore
from simulator.generation import Generator
from simulator.http_server import Exchange, error_body
from simulator.metrics import EngineMetrics
from simulator.requests import bad_request, decode
from simulator.scheduler import Sequence
from simulator.similarity import DIMENSIONS, cosine, embed

_Ids = Annotated[list[int], Meta(min_length=1)]


class EmbeddingRequest(Struct, frozen=True, kw_only=True):
    """A text, token ids, or a list of either."""

    model: str | None = None
    input: str | Annotated[list[str | int | _Ids], Meta(min_length=1, max_length=100_000)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1, le=DIMENSIONS)] = DIMENSIONS

    def inputs(self) -> list[str] | list[list[int]]:
        """Raises: ApiError for a list of which not all are of one kind."""
        if isinstance(self.input, str):
            return [self.input]
        for kind in (str, list, int):
            if all(isinstance(each, kind) for each in self.input):
                return [self.input] if kind is int else self.input  # type: ignore[return-value]
        raise bad_request("input must be a text, a list of texts, token ids, or a list of such lists", "input")


class _Document(Struct, frozen=True):
    text: str


class RerankRequest(Struct, frozen=True, kw_only=True):
    model: str | None = None
    query: str
    documents: Annotated[list[str | _Document], Meta(min_length=1, max_length=100_000)]
    top_n: Annotated[int, Meta(ge=0)] | None = None

    def texts(self) -> list[str]:
        return [each if isinstance(each, str) else each.text for each in self.documents]


@dataclass(frozen=True)
class PooledJob:
    """The tokens of each input, and the answer once they have been read. `render` takes the request's id and time."""

    prompt_tokens: list[int]
    render: Callable[[str, int], dict[str, Any]]

    def answer(self, request_id: bytes, created: int) -> bytes:
        total = sum(self.prompt_tokens)
        document = self.render(request_id.decode(), created)
        return msgspec.json.encode({**document, "usage": {"prompt_tokens": total, "total_tokens": total}})


def plan_embeddings(generator: Generator, body: bytes) -> PooledJob:
    """Raises: ApiError."""
    request: EmbeddingRequest = decode(body, EmbeddingRequest)
    model = generator.model_of(request.model)
    ids = [generator.prompt_ids(each, "input") for each in request.inputs()]

    def render(request_id: str, created: int) -> dict[str, Any]:
        vectors = [embed(generator.text_of(each), request.dimensions) for each in ids]
        rows = [
            {"object": "embedding", "index": index, "embedding": _encoded(vector, request.encoding_format)}
            for index, vector in enumerate(vectors)
        ]
        return {"id": f"embd-{request_id}", "object": "list", "created": created, "model": model, "data": rows}

    return PooledJob(list(map(len, ids)), render)


def plan_rerank(generator: Generator, body: bytes) -> PooledJob:
    """Raises: ApiError."""
    request: RerankRequest = decode(body, RerankRequest)
    model = generator.model_of(request.model)
    texts = request.texts()
    query_tokens = len(generator.prompt_ids(request.query, "query"))
    # An empty document is as long as its query.
    tokens = [query_tokens + len(generator.tokenize(text)) for text in texts]
    for each in tokens:
        generator.check_length(each, "documents")

    def render(request_id: str, created: int) -> dict[str, Any]:
        query = embed(request.query)
        scores = [max(0.0, cosine(query, embed(text))) for text in texts]
        order = sorted(range(len(texts)), key=lambda index: (-scores[index], index))
        rows = [
            {"index": index, "document": {"text": texts[index]}, "relevance_score": scores[index]}
            for index in order[: request.top_n or None]
        ]
        return {"id": f"rerank-{request_id}", "model": model, "results": rows}

    return PooledJob(tokens, render)


def _encoded(vector: list[float], encoding_format: str) -> list[float] | str:
    if encoding_format == "float":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


class PooledAnswer:
    """One request in the engine, answered when all of its inputs have been read.

    The sequences are aborted at once when the client leaves; `ended` is called once, however it ends.
    """

    def __init__(
        self,
        exchange: Exchange,
        job: PooledJob,
        request_id: bytes,
        created: int,
        core: EngineCore,
        metrics: EngineMetrics,
        ended: Callable[[PooledAnswer], None],
    ) -> None:
        self._exchange, self._job, self._request_id, self._created = exchange, job, request_id, created
        self._core, self._metrics, self._ended = core, metrics, ended
        now, name = core.now(), request_id.decode()
        self._unfinished = {
            Sequence(f"{name}-{index}", tokens, 1, now, pooled=True) for index, tokens in enumerate(job.prompt_tokens)
        }

    def start(self) -> None:
        self._exchange.on_disconnect = self._abort
        for sequence in list(self._unfinished):
            self._core.submit(sequence, self._on_read)

    def fail(self, status: int, message: str) -> None:
        self._leave_core()
        self._exchange.answer(status, error_body(status, "InternalServerError", message))
        self._ended(self)

    def _abort(self) -> None:
        self._leave_core()
        self._ended(self)

    def _leave_core(self) -> None:
        for sequence in self._unfinished:
            self._core.abort(sequence)

    def _on_read(self, sequence: Sequence) -> None:
        self._unfinished.discard(sequence)
        self._metrics.sequence_finished(sequence, "stop", sequence.output_tokens)
        if not self._unfinished:
            self._exchange.answer(200, self._job.answer(self._request_id, self._created))
            self._ended(self)
