"""How long a prompt is, asked of an engine: of models whose tokenizer nobody has uploaded.

An answer is waited for so shortly that nobody notices; an engine that gives none is left alone for a while.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
from collections.abc import Callable
from typing import Annotated, Any

import aiohttp
import msgspec
from msgspec import UNSET, Meta, Struct

from gateway import settings
from gateway.measure.counts import Counts
from gateway.view import View
from policy.adapters import asked_as
from policy.asks import Ask, PromptTokens
from policy.conversations import conversation
from wire.snapshot import Engine

log = logging.getLogger("headworks.gateway.measure")
PATH = "/tokenize"
# Of those that answer there, these render chats themselves; SGLang counts texts.
_RENDERS, _COUNTS_TEXTS = "vllm", "sglang"
# What takes longer than the wait to send and to count anyway.
_MAX_CHARACTERS = 128 * 1024
_OPENS = "add_generation_prompt"
# Statuses that say nothing of the engine.
_OF_THIS_PROMPT = (400, 413, 422)
# The answer spells out every token.
_MAX_ANSWER_BYTES = 4 * 1024 * 1024


class _Answer(Struct):
    count: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class EngineTokenizer:
    """`may_ask(engine)`: whether it stands well. `http`: the session of all calls to engines."""

    def __init__(
        self, http: aiohttp.ClientSession, may_ask: Callable[[View, str], bool], now_ms: Callable[[], int]
    ) -> None:
        self._http, self._may_ask, self._now_ms = http, may_ask, now_ms
        self._wait_seconds = settings.ENGINE_TOKENIZE_SECONDS.read()
        self._pause_ms = int(settings.ENGINE_TOKENIZE_PAUSE_SECONDS.read() * 1000)
        self._counts = Counts(settings.TOKEN_COUNT_CACHE.read())
        self._paused_until_ms: dict[str, int] = {}
        self._turns = itertools.count()

    async def prompt_tokens(self, ask: Ask, model_name: str, view: View, message_overhead: int) -> PromptTokens | None:
        """None where no engine tells, or not in time. Prompt lists and token ids are not asked about."""
        several = not ask.messages and len(ask.texts) != 1
        if not self._wait_seconds or several or sum(map(len, ask.texts)) > _MAX_CHARACTERS:
            return None
        name = self._engine_for(model_name, view)
        if name is None:
            return None
        engine = view.snapshot.engines[name]
        name_there = asked_as(view.snapshot.models[model_name], view.snapshot.pools[engine.pool], engine)
        question = _question(ask, engine, name_there)
        renders = "messages" in question
        body = msgspec.json.encode(question)
        key = model_name, hashlib.blake2b(body, digest_size=16).digest()
        count = self._counts.get(key)
        if count is None:
            count = await self._ask(name, engine, body)
            if count is None:
                return None
            self._counts.put(key, count)
        total = count if renders else count + ask.messages * message_overhead
        return PromptTokens(total, total)

    def _engine_for(self, model_name: str, view: View) -> str | None:
        """One after another of the model's engines that may be asked."""
        now_ms = self._now_ms()
        able = [
            name
            for pool in view.pools_of(model_name)
            for name in view.engines_of[pool]
            if self._is_able(name, view.snapshot.engines[name], now_ms) and self._may_ask(view, name)
        ]
        return able[next(self._turns) % len(able)] if able else None

    def _is_able(self, name: str, engine: Engine, now_ms: int) -> bool:
        if engine.kind not in (_RENDERS, _COUNTS_TEXTS) or engine.cordoned:
            return False
        return self._paused_until_ms.get(name, 0) <= now_ms

    async def _ask(self, name: str, engine: Engine, body: bytes) -> int | None:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if engine.api_key is not UNSET:
            headers["Authorization"] = f"Bearer {engine.api_key}"
        try:
            async with (
                asyncio.timeout(self._wait_seconds),
                self._http.post(
                    engine.url.rstrip("/") + PATH, data=body, headers=headers, allow_redirects=False
                ) as answer,
            ):
                if answer.status == 200:
                    return msgspec.json.decode(await _read(answer), type=_Answer).count
                if answer.status in _OF_THIS_PROMPT:
                    return None
                why = f"it answered {answer.status}"
        except TimeoutError:
            why = f"it took longer than {self._wait_seconds:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Its words may hold the engine's address. msgspec's errors are ValueErrors, too.
            why = type(error).__name__
        self._pause(name, why)
        return None

    def _pause(self, name: str, why: str) -> None:
        now_ms = self._now_ms()
        # Engines that are configured no more are forgotten by their time.
        self._paused_until_ms = {each: until for each, until in self._paused_until_ms.items() if until > now_ms}
        self._paused_until_ms[name] = now_ms + self._pause_ms
        log.info("engine %s counts no tokens for %g s: %s", name, self._pause_ms / 1000, why)


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """Raises: ValueError for a longer answer than any should be."""
    body = bytearray()
    async for part in answer.content.iter_any():
        body += part
        if len(body) > _MAX_ANSWER_BYTES:
            raise ValueError("the answer is too long")
    return bytes(body)


def _question(ask: Ask, engine: Engine, name: str) -> dict[str, Any]:
    talk = conversation(ask) if engine.kind == _RENDERS else None
    if talk is None:
        return {"model": name, "prompt": "\n".join(ask.texts), "add_special_tokens": not ask.messages}
    messages = [_with_texts(message) for message in talk.messages]
    question: dict[str, Any] = {"model": name, "messages": messages}
    if talk.tools:
        question["tools"] = talk.tools
    more = dict(talk.more)
    if (opens := more.pop(_OPENS, None)) is not None:
        # There it is a field beside the others, whose default would go before.
        question[_OPENS] = opens
    if more:
        question["chat_template_kwargs"] = more
    return question


def _with_texts(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its tool calls' arguments as texts of JSON again, as the API has them."""
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        calls.append({**call, "function": {**call["function"], "arguments": text}})
    return {**message, "tool_calls": calls}
