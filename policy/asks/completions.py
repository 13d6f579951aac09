"""`POST /v1/completions`."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from policy.asks.api import Api, Reading, Sampling
from policy.asks.prompts import read_prompts


class _Completion(Sampling):
    prompt: Raw = Raw(b"null")


def _read(completion: _Completion) -> Reading:
    reading = read_prompts(completion.prompt, "prompt")
    reading.asked_max_tokens = completion.max_tokens or None
    # All prompts of a list are generated from at once.
    reading.sequences = completion.choices * reading.inputs
    reading.stream, reading.wants_usage = bool(completion.stream), completion.wants_usage
    return reading


API = Api(
    path="/v1/completions",
    text_field="prompt",
    decoder=msgspec.json.Decoder(_Completion),
    read=_read,
    output_field="max_tokens",
    format_in=("response_format",),
    forces_usage=True,
    shortened_by="truncate_prompt_tokens",
)
