"""`POST /v1/rerank`, in the shape that vLLM, Jina and Cohere share.

The query is read again before each document, and counted so. As with embeddings, the list is one sequence.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from policy.asks.api import Api, Asking, Reading
from policy.asks.body import MAX_ITEMS


class _Document(Struct):
    text: str


class _Rerank(Asking):
    query: str
    documents: Annotated[list[str | _Document], Meta(min_length=1, max_length=MAX_ITEMS)]


def _read(rerank: _Rerank) -> Reading:
    documents = [each if isinstance(each, str) else each.text for each in rerank.documents]
    return Reading(texts=[rerank.query, *documents], separate=True, after_first=True, inputs=len(documents))


API = Api(
    path="/v1/rerank",
    text_field="documents",
    decoder=msgspec.json.Decoder(_Rerank),
    read=_read,
    output_field=None,
    shortened_by="truncate_prompt_tokens",
)
