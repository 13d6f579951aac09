"""How long the prompt of a request is that somebody asks about: counted as gateways count."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from msgspec import UNSET
from tokenizers import Tokenizer

from controlplane.fleet.services import artifacts
from policy.asks import MESSAGE_OVERHEAD_TOKENS, Ask, token_counts
from wire.snapshot import Model

# One of the largest takes some 100 MB and a second to read.
_TOKENIZERS_KEPT = 2


class Size(NamedTuple):
    """`source`: `given`, `tokenizer`, or `estimate` where the model has no tokenizer: UTF-8 bytes ÷ 4, rounded up."""

    tokens: int
    source: Literal["given", "tokenizer", "estimate"]


def measured(ask: Ask, model: Model) -> Size:
    """By the model's own tokenizer, and with what gateways allow for each message unless they are set otherwise."""
    if model.tokenizer is UNSET:
        return Size(ask.estimated_tokens(MESSAGE_OVERHEAD_TOKENS), "estimate")
    counts = token_counts(_tokenizer(model.tokenizer), ask.texts)
    return Size(ask.fixed_tokens(MESSAGE_OVERHEAD_TOKENS) + sum(counts), "tokenizer")


@lru_cache(maxsize=_TOKENIZERS_KEPT)
def _tokenizer(sha256: str) -> Tokenizer:
    return Tokenizer.from_buffer(artifacts.content_of(sha256))
