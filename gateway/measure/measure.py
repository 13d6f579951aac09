"""How long a prompt is, from the surest source that there is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import UNSET

from gateway import settings
from gateway.measure.artifacts import Artifacts
from gateway.measure.counts import Counts, key_of
from gateway.measure.engine_tokenizer import EngineTokenizer
from gateway.measure.fair_thread import FairThread
from gateway.view import View
from policy.asks import Ask, PromptTokens
from policy.chat_template import ChatTemplate
from policy.model_tokenizer import ModelTokenizer, batches
from policy.prompts import Prompt, PromptReader, Source
from policy.template_work import Budget, TooMuchWork
from wire.snapshot import Model

T = TypeVar("T")
# To read and render a message takes as long as to count so many characters; and so many of its own, as one.
_CHARACTERS_A_MESSAGE = 16
_CHARACTERS_AS_FAST = 50
# What a template may take while all others wait: a few milliseconds.
_ON_LOOP = Budget(2_000, 0.01)
_SLOW_SECONDS = 10


class PromptSize(NamedTuple):
    """`source`: `template`, `tokenizer` where the model has no chat template (yet), `engine` where it has no tokenizer
    and an engine counted, else `estimate`: UTF-8 bytes ÷ 4, rounded up for each text.

    `longest`: tokens of the one input that must fit into the context, where a body holds several.
    """

    tokens: int
    source: Source | Literal[""]
    longest: int

    @property
    def is_measured(self) -> bool:
        """Whether it may be held against a prompt; what is estimated may be too long in appearance only."""
        return self.source != "estimate"


class Measure:
    """Counts prompts by artifacts of the control plane, engines, or estimates.

    A conversation is rendered by its model's chat template, then cut where its tokenizer cuts it anyway (see
    `model_tokenizer.pieces`): the tokens of the whole are those of the pieces, of which most were counted before.
    Images and audio are not measured. Real usage replaces the measure when the request settles.
    """

    def __init__(self, artifacts_dir: Path, fetch: Callable[[str], Awaitable[bytes]], engines: EngineTokenizer) -> None:
        self._engines = engines
        self._counts = Counts(settings.TOKEN_COUNT_CACHE.read())
        self._off_loop_characters = settings.TOKENIZE_OFF_LOOP_CHARACTERS.read()
        self._message_overhead = settings.MESSAGE_OVERHEAD_TOKENS.read()
        # One thread: measuring may take a core, the others belong to the streams.
        self._thread = FairThread("tokenize")
        self._readers: dict[tuple[str, str], PromptReader] = {}
        # Those whose template takes long for what it is given, and until when they are taken to.
        self._slow_until: dict[PromptReader, float] = {}
        retry_seconds = settings.ARTIFACT_RETRY_SECONDS.read()
        common = (fetch, self._of_nobody, retry_seconds, self._forget_readers)
        self._tokenizers = Artifacts("tokenizer", ModelTokenizer.read, artifacts_dir / "tokenizers", *common)
        self._templates = Artifacts("chat template", _read_template, artifacts_dir / "chat-templates", *common)

    def configure(self, view: View) -> None:
        """Begin to load the files that a view names, and drop those it no longer names."""
        models = view.snapshot.models.values()
        self._tokenizers.configure({model.tokenizer for model in models if model.tokenizer is not UNSET})
        self._templates.configure({model.chat_template for model in models if model.chat_template is not UNSET})

    async def close(self) -> None:
        await asyncio.gather(self._tokenizers.close(), self._templates.close())
        self._thread.close()

    async def prompt_size(self, ask: Ask, model_name: str, view: View, tenant_name: str) -> PromptSize:
        """Of the whole prompt: what its model's template makes of it, token ids as they came.

        Tenants have the thread in turn, so that nobody waits for all the long prompts of somebody else.
        """
        model = view.snapshot.models[model_name]
        reader = self._reader(model)
        if reader is not None and model.tokenizer is not UNSET:
            return await self._counted(ask, reader, model.tokenizer, tenant_name)
        if (found := await self._engines.prompt_tokens(ask, model_name, view, self._message_overhead)) is not None:
            return _size(found, "engine")
        return _size(ask.estimated_tokens(self._message_overhead), "estimate")

    async def _counted(self, ask: Ask, reader: PromptReader, tokenizer: str, tenant_name: str) -> PromptSize:
        prompt = await self._read(ask, reader, tenant_name)
        counts = await self._count(reader, tokenizer, prompt, tenant_name)
        return _size(reader.tokens(ask, prompt, counts, self._message_overhead), prompt.source)

    async def _read(self, ask: Ask, reader: PromptReader, tenant_name: str) -> Prompt:
        """In the event loop what is short, and in a thread what turned out not to be, for a while."""
        characters = sum(map(len, ask.texts))
        work = ask.messages * _CHARACTERS_A_MESSAGE + characters // _CHARACTERS_AS_FAST
        if work <= self._off_loop_characters and self._slow_until.get(reader, 0) <= time.monotonic():
            try:
                return reader.read(ask, _ON_LOOP)
            except TooMuchWork:
                self._slow_until[reader] = time.monotonic() + _SLOW_SECONDS
        return await self._thread.run(tenant_name, reader.read, ask)

    async def _count(self, reader: PromptReader, tokenizer: str, prompt: Prompt, tenant_name: str) -> list[int]:
        """The tokens of each of the prompt's texts; only those that are not remembered are counted."""
        keys = [key_of(tokenizer, text) for text in prompt.texts]
        counts = [self._counts.get(key) for key in keys]
        unknown = [index for index, count in enumerate(counts) if count is None]
        if unknown:
            texts = [prompt.texts[index] for index in unknown]
            if sum(map(len, texts)) <= self._off_loop_characters:
                found = reader.tokenizer.counts(texts)
            else:
                found = await self._counted_in_turn(reader.tokenizer, texts, tenant_name)
            for index, count in zip(unknown, found, strict=True):
                counts[index] = count
                self._counts.put(keys[index], count)
        return [count or 0 for count in counts]

    async def _counted_in_turn(self, tokenizer: ModelTokenizer, texts: list[str], tenant_name: str) -> list[int]:
        """In the thread, where other tenants have their turn after each batch; nothing is counted for who has left."""
        counts = [0] * len(texts)
        for batch in batches(texts):
            found = await self._thread.run(tenant_name, tokenizer.counts_of, batch)
            for index, tokens in zip(batch.indices, found, strict=True):
                counts[index] += tokens
        return counts

    def _reader(self, model: Model) -> PromptReader | None:
        """None where the model has no tokenizer, or none yet."""
        if model.tokenizer is UNSET:
            return None
        template_sha = "" if model.chat_template is UNSET else model.chat_template
        key = model.tokenizer, template_sha
        reader = self._readers.get(key)
        if reader is None and (tokenizer := self._tokenizers.get(model.tokenizer)) is not None:
            reader = self._readers[key] = PromptReader(tokenizer, self._templates.get(template_sha))
        return reader

    def _forget_readers(self) -> None:
        self._readers.clear()
        self._slow_until.clear()

    async def _of_nobody(self, work: Callable[..., T], *arguments: Any) -> T:
        return await self._thread.run("", work, *arguments)


def _size(found: PromptTokens, source: Source) -> PromptSize:
    return PromptSize(found.total, source, found.longest)


def _read_template(data: bytes) -> ChatTemplate:
    return ChatTemplate(data.decode(), time.time)
