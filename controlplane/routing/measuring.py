"""How long the prompt of a request is that somebody asks about: counted as gateways count."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Literal, NamedTuple

from msgspec import UNSET

from controlplane.fleet.services import artifacts
from policy.asks import MESSAGE_OVERHEAD_TOKENS, Ask
from policy.chat_template import ChatTemplate
from policy.model_tokenizer import ModelTokenizer
from policy.prompts import PromptReader
from wire.snapshot import Model

# One of the largest tokenizers takes some 100 MB and a second to read.
_READERS_KEPT = 2


class Size(NamedTuple):
    """`source`: `given`; `template`; `tokenizer` where the model has no chat template; or `estimate` where it has no
    tokenizer: UTF-8 bytes ÷ 4, rounded up. Gateways ask an engine before they estimate.

    `longest`: tokens of the one input that must fit into the context, where a body holds several.
    """

    tokens: int
    longest: int
    source: Literal["given", "template", "tokenizer", "engine", "estimate"]

    @property
    def is_measured(self) -> bool:
        return self.source in ("template", "tokenizer")


def measured(ask: Ask, model: Model) -> Size:
    """By the model's own tokenizer and template, else with what gateways allow for each message by default."""
    if model.tokenizer is UNSET:
        return Size(*ask.estimated_tokens(MESSAGE_OVERHEAD_TOKENS), "estimate")
    reader = _reader(model.tokenizer, None if model.chat_template is UNSET else model.chat_template)
    prompt = reader.read(ask)
    counts = reader.tokenizer.counts(prompt.texts)
    return Size(*reader.tokens(ask, prompt, counts, MESSAGE_OVERHEAD_TOKENS), prompt.source)


@lru_cache(maxsize=_READERS_KEPT)
def _reader(tokenizer: str, template: str | None) -> PromptReader:
    rendered = None if template is None else ChatTemplate(artifacts.content_of(template).decode(), time.time)
    return PromptReader(ModelTokenizer.read(artifacts.content_of(tokenizer)), rendered)
