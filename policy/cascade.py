"""Whether a small model's answer is good enough to be given: read from the whole answer, pure.

Answers of chats and completions, as one document or as the events of a stream. Source: seed 1, section 12.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct

from policy.asks import Endpoint
from wire.snapshot import Cascade, EscalationReason

_NULL = Raw(b"null")
_DONE = b"[DONE]"


class Wanted(NamedTuple):
    """What the request asked of its answer: JSON, and a length that it set itself."""

    json: bool
    own_length: bool


class Verdict(NamedTuple):
    """`reason`: why the answer is not good enough; None: it is. `confidence_permille`: None where it was not asked for.

    Confidence is the mean probability of the answer's tokens; of several sequences, the least.
    """

    reason: EscalationReason | None
    confidence_permille: int | None = None


class _Message(Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: Raw = _NULL
    function_call: Raw = _NULL


class _Token(Struct):
    logprob: float | None = None


class _Logprobs(Struct):
    content: list[_Token] | None = None
    refusal: list[_Token] | None = None
    token_logprobs: list[float | None] | None = None

    def each(self) -> Iterator[float]:
        tokens = [*(self.content or ()), *(self.refusal or ())]
        for logprob in [*(token.logprob for token in tokens), *(self.token_logprobs or ())]:
            if logprob is not None:
                yield logprob


class _Choice(Struct):
    index: int = 0
    message: _Message | None = None
    delta: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Answer(Struct):
    choices: list[_Choice] = []


@dataclass(slots=True)
class _Sequence:
    """One sequence of the answer, put together from its parts."""

    texts: list[str] = field(default_factory=list)
    calls_tool: bool = False
    refuses: bool = False
    finish_reason: str = ""
    probability: float = 0.0
    tokens: int = 0

    def add(self, part: _Choice) -> None:
        message = part.message or part.delta or _Message()
        self.texts += [text for text in (message.content, part.text) if text]
        self.calls_tool |= any(
            bytes(raw) not in (b"null", b"[]") for raw in (message.tool_calls, message.function_call)
        )
        self.finish_reason = part.finish_reason or self.finish_reason
        self.refuses |= bool(message.refusal) or part.finish_reason == "content_filter"
        for logprob in part.logprobs.each() if part.logprobs else ():
            # A probability; numbers below the smallest logarithm of a double are none at all.
            self.probability += math.exp(min(logprob, 0.0))
            self.tokens += 1

    @property
    def confidence_permille(self) -> int:
        """0 where the engine told of no token how probable it was."""
        return int(self.probability * 1000 / self.tokens) if self.tokens else 0


_answer = msgspec.json.Decoder(_Answer)
_fields = msgspec.json.Decoder(dict[str, Raw])
_choices = msgspec.json.Decoder(list[dict[str, Raw]])


def is_asked_first(cascade: Cascade, endpoint: Endpoint, prompt_tokens: int) -> bool:
    """Whether a request of a route is for its small model at all. Of other APIs' answers nothing is judged."""
    longest = cascade.max_prompt_tokens
    return endpoint in ("chat", "completions") and (longest is UNSET or prompt_tokens <= longest)


def judge_answer(body: bytes, *, stream: bool, cascade: Cascade, wanted: Wanted) -> Verdict:
    """By the reasons of `cascade.escalate_on`, in this order: length, empty, refusal, invalid_json, low_confidence.

    An answer that ends at the length that the request set itself is as long as was asked for. One that calls a tool is
    not empty, and need be no JSON. What cannot be read is empty.
    """
    sequences = _read(_documents(body) if stream else [body])
    confidence = min((each.confidence_permille for each in sequences), default=0)
    shown = None if cascade.confidence_permille is UNSET else confidence
    found: dict[EscalationReason, bool] = {
        "length": not wanted.own_length and any(each.finish_reason == "length" for each in sequences),
        "empty": not sequences or any(_is_empty(each) for each in sequences),
        "refusal": any(each.refuses for each in sequences),
        "invalid_json": wanted.json and any(not each.calls_tool and not _is_json(each) for each in sequences),
        "low_confidence": shown is not None and shown < _threshold(cascade),
    }
    reason = next((reason for reason, holds in found.items() if holds and reason in cascade.escalate_on), None)
    return Verdict(reason, shown)


def without_logprobs(body: bytes, *, stream: bool) -> bytes:
    """The answer to a client who did not ask for log probabilities: null, as engines say it."""
    if not stream:
        return _hidden(body)
    return b"".join(_line_without(line) for line in body.splitlines(keepends=True))


def _threshold(cascade: Cascade) -> int:
    return 0 if cascade.confidence_permille is UNSET else cascade.confidence_permille


def _read(documents: Iterable[bytes]) -> list[_Sequence]:
    sequences: dict[int, _Sequence] = {}
    for document in documents:
        try:
            parts = _answer.decode(document).choices
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        for part in parts:
            sequences.setdefault(part.index, _Sequence()).add(part)
    return list(sequences.values())


def _documents(stream: bytes) -> Iterator[bytes]:
    for line in stream.splitlines():
        if line.startswith(b"data:") and (data := line[5:].strip()) != _DONE:
            yield data


def _is_empty(sequence: _Sequence) -> bool:
    return not sequence.calls_tool and not "".join(sequence.texts).strip()


def _is_json(sequence: _Sequence) -> bool:
    try:
        msgspec.json.decode("".join(sequence.texts))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _line_without(line: bytes) -> bytes:
    if not line.startswith(b"data:") or b'"logprobs"' not in line:
        return line
    data = line[5:].strip()
    return line.replace(data, _hidden(data))


def _hidden(document: bytes) -> bytes:
    try:
        fields = _fields.decode(document)
        choices = _choices.decode(fields.get("choices", b"[]"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return document
    hidden = [choice | {"logprobs": _NULL} if "logprobs" in choice else choice for choice in choices]
    return msgspec.json.encode(fields | {"choices": hidden}) if hidden else document
