"""The canary: a completion of one token. An engine that hangs while nothing runs is seen by it alone."""

from __future__ import annotations

import msgspec

from gpu_agent.engines.probe import Probe
from wire.messages import UNREADABLE

# How vLLM ends what it did not compute, under status 200.
_NOT_COMPUTED = ("abort", "error")


class _Choice(msgspec.Struct):
    text: str
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]


def _question(model: str) -> bytes:
    return msgspec.json.encode({"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0})


def _broken_rule(body: bytes) -> str:
    try:
        choices = msgspec.json.decode(body, type=_Answer).choices
    except UNREADABLE as error:
        return f"no_completion: the answer is none: {error}"
    if not choices:
        return "no_completion: the answer has no choices"
    if choices[0].finish_reason in _NOT_COMPUTED:
        return f"no_completion: it ended with finish_reason {choices[0].finish_reason}"
    return ""


CANARY = Probe("canary", "/v1/completions", _question, _broken_rule)
