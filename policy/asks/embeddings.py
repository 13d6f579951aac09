"""`POST /v1/embeddings`: nothing is generated, so the inputs alone are counted.

A list is one sequence: each of its inputs is read in one step and leaves at once, so its inputs do not hold places
beside one another for as long as the request takes.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from policy.asks.api import Api, Asking, Reading
from policy.asks.prompts import read_prompts


class _Embedding(Asking):
    input: Raw = Raw(b"null")


def _read(embedding: _Embedding) -> Reading:
    return read_prompts(embedding.input, "input")


API = Api(
    path="/v1/embeddings",
    text_field="input",
    decoder=msgspec.json.Decoder(_Embedding),
    read=_read,
    output_field=None,
    shortened_by="truncate_prompt_tokens",
)
