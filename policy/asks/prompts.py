"""Inputs as OpenAI takes them for completions and embeddings: a text, token ids, or a list of either."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from policy.admission import NotAdmitted
from policy.asks.api import Reading
from policy.asks.body import MAX_ITEMS

_TokenIds = Annotated[list[Annotated[int, Meta(ge=0, le=2**31 - 1)]], Meta(min_length=1)]
_Items = Meta(min_length=1, max_length=MAX_ITEMS)
# Tried in turn: a list of millions of token ids is checked without a loop in Python.
_decoders: tuple[msgspec.json.Decoder[Any], ...] = (
    msgspec.json.Decoder(str),
    msgspec.json.Decoder(_TokenIds),
    msgspec.json.Decoder(Annotated[list[str], _Items]),
    msgspec.json.Decoder(Annotated[list[_TokenIds], _Items]),
)


def read_prompts(prompt: Raw, field: str) -> Reading:
    """Raises: NotAdmitted (`bad_field`)."""
    for decoder in _decoders:
        try:
            decoded = decoder.decode(prompt)
        except msgspec.ValidationError:
            continue
        if isinstance(decoded, str):
            return Reading(texts=[decoded])
        if isinstance(decoded[0], int):
            return Reading(counted_tokens=len(decoded))
        if isinstance(decoded[0], str):
            return Reading(texts=decoded, separate=True, inputs=len(decoded))
        lengths = list(map(len, decoded))
        return Reading(counted_tokens=sum(lengths), longest_ids=max(lengths), separate=True, inputs=len(decoded))
    raise NotAdmitted(
        "bad_field",
        f"`{field}` must be a text, a list of texts, a list of token ids, or a list of such lists; at most {MAX_ITEMS} "
        "of them",
        param=field,
    )
