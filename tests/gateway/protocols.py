"""What an engine answers in each API: whole, and as the parts of a stream that ends with its usage."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from tests.gateway.fleet import DONE, MODEL, ScriptedEngine, delta, event, usage

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "embeddings": "/v1/embeddings",
    "rerank": "/v1/rerank",
    "messages": "/v1/messages",
}
STREAMED = ("chat", "completions", "responses", "messages")
HELLO = [{"role": "user", "content": "hello"}]
# 8 bytes of text: 2 tokens by estimate, and those of a chat's role and marks.
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"model": MODEL, "messages": HELLO},
    "completions": {"model": MODEL, "prompt": "12345678"},
    "responses": {"model": MODEL, "input": "12345678"},
    "embeddings": {"model": MODEL, "input": ["1234", "1234"]},
    "rerank": {"model": MODEL, "query": "1234", "documents": ["1234", "1234"]},
    "messages": {"model": MODEL, "messages": HELLO, "max_tokens": 50},
}
WHOLE: dict[str, dict[str, Any]] = {
    "chat": {"object": "chat.completion", "choices": [{"message": {"content": "ab"}}], "usage": usage(7, 2)},
    "completions": {"object": "text_completion", "choices": [{"text": "ab"}], "usage": usage(7, 2)},
    "responses": {
        "object": "response",
        "status": "completed",
        "error": None,
        "usage": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9},
    },
    "embeddings": {"object": "list", "data": [], "usage": {"prompt_tokens": 9, "total_tokens": 9}},
    "rerank": {"results": [], "usage": {"total_tokens": 9}},
    "messages": {"type": "message", "usage": {"input_tokens": 7, "output_tokens": 2}},
}


def named(name: str, **fields: Any) -> bytes:
    return f"event: {name}\n".encode() + event({"type": name, **fields})


def _responses(counts: dict[str, int] | None) -> list[bytes]:
    open_response: dict[str, Any] = {"id": "r", "status": "in_progress", "error": None, "usage": None, "output": []}
    return [
        named("response.created", sequence_number=0, response=open_response),
        named("response.output_text.delta", sequence_number=1, delta="a", output_index=0, content_index=0, item_id="i"),
        named("response.output_text.delta", sequence_number=2, delta="b", output_index=0, content_index=0, item_id="i"),
        named("response.completed", sequence_number=3, response={**open_response, "usage": counts}),
    ]


def _messages(counts: dict[str, int] | None) -> list[bytes]:
    started = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m"}
    input_counts = {"input_tokens": counts["input_tokens"], "output_tokens": 0} if counts else None
    output_counts = {"output_tokens": counts["output_tokens"]} if counts else None
    text = {"type": "text_delta", "text": "a"}
    return [
        named("message_start", message={**started, "usage": input_counts}),
        named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        named("content_block_delta", index=0, delta=text),
        named("content_block_delta", index=0, delta=text),
        named("content_block_stop", index=0),
        named("message_delta", delta={"stop_reason": "end_turn"}, usage=output_counts),
        named("message_stop"),
    ]


def stream_parts(api: str, prompt_tokens: int = 7, output_tokens: int = 2, *, told: bool = True) -> list[bytes]:
    """Two tokens, and the usage that the engine tells; without `told` it tells none."""
    if api in ("responses", "messages"):
        counts = {"input_tokens": prompt_tokens, "output_tokens": output_tokens} if told else None
        return _responses(counts) if api == "responses" else _messages(counts)
    last = [event({"choices": [], "usage": usage(prompt_tokens, output_tokens)})] if told else []
    return [event(delta("a")), event(delta("b")), *last, DONE]


ERROR_EVENTS = {
    "chat": event({"error": {"message": "full", "code": 503}}),
    "completions": event({"error": {"message": "full", "code": 503}}),
    "responses": named("error", code="server_error", message="full", param=None),
    "messages": named("error", error={"type": "overloaded_error", "message": "full"}),
}


class SpeakingEngine(ScriptedEngine):
    """An engine that answers every API with a usage of 9 tokens."""

    async def answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        api = next(api for api, path in PATHS.items() if path == request.path)
        if body.get("stream"):
            return await self.stream(request, *stream_parts(api))
        return web.json_response(WHOLE[api])


def data_of(events: bytes) -> list[dict[str, Any]]:
    """The JSON of each event of a stream, its end aside."""
    lines = [line for line in events.decode().split("\n") if line.startswith("data: ") and line != "data: [DONE]"]
    return [json.loads(line[6:]) for line in lines]
