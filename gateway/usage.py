"""What an engine says it used, read from its answer with as little parsing as that needs."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

_Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
# Longer than any event of an OpenAI stream; a longer one is passed on in parts, unread.
MAX_EVENT_BYTES = 1024 * 1024


class Usage(Struct):
    """Token counts of a whole request; `completion_tokens` sums over its sequences. A zero is a zero."""

    prompt_tokens: _Count
    completion_tokens: _Count = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class _Answer(Struct):
    usage: Usage | None = None


class _Event(Struct):
    usage: Usage | None = None
    choices: list[Any] | None = None


class _Failure(Struct):
    message: str = ""
    code: Any = None


class _Erring(Struct):
    error: _Failure | str | None = None


class _Choice(Struct):
    finish_reason: Any = None


class _Ending(Struct):
    choices: list[_Choice] = []


# (message, HTTP-like code), as `failure_in` gives them.
GIVEN_UP = ("it gave the request up: finish_reason abort", None)
# JSON escapes quotes in text, so these bytes are a key or a value, or a text that is this very word.
_NOTED = re.compile(rb'"(?:usage|error|abort)"')
_answer_decoder = msgspec.json.Decoder(_Answer)
_event_decoder = msgspec.json.Decoder(_Event)
_error_decoder = msgspec.json.Decoder(_Erring)
_ending_decoder = msgspec.json.Decoder(_Ending)


class NotAnAnswer(ValueError):
    """An engine's answer that is no JSON."""


def usage_of_answer(body: bytes) -> Usage | None:
    """The usage of a whole answer; None if it holds none. Raises: NotAnAnswer."""
    try:
        return _answer_decoder.decode(body).usage
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotAnAnswer(str(error)) from None


def failure_in(document: bytes) -> tuple[str, int | None] | None:
    """(message, HTTP-like code) when a JSON document is an error, as vLLM sends under HTTP 200 too; else None."""
    try:
        error = _error_decoder.decode(document).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if error is None:
        return None
    if isinstance(error, str):
        return error, None
    code = error.code
    return error.message, code if isinstance(code, int) and 400 <= code <= 599 else None


def given_up(document: bytes) -> bool:
    """Whether the engine ended the request by itself. vLLM that is stopped ends its streams so, as if all were well."""
    if b'"abort"' not in document:
        return False
    try:
        choices = _ending_decoder.decode(document).choices
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return any(choice.finish_reason == "abort" for choice in choices)


class StreamReader:
    """Cuts an event stream into whole events, counts them, and takes the usage out.

    Whole events leave as they came. `hide_usage` drops the event that carries usage and no choices, which the
    client did not ask for. An error event, or one that says that the engine gave up, sets `failure`; it and what
    follows it do not leave.
    """

    def __init__(self, *, hide_usage: bool) -> None:
        self.usage: Usage | None = None
        self.events = 0
        self.done = False
        self.failure: tuple[str, int | None] | None = None
        self._hide_usage = hide_usage
        self._rest = b""
        self._mark = b"\n\n"

    def feed(self, chunk: bytes) -> bytes:
        """The whole events in what has come so far; an unfinished one is kept for the next chunk."""
        if self._rest:
            chunk = self._rest + chunk
            self._rest = b""
        if not self.events and b"\r\n\r\n" in chunk:
            self._mark = b"\r\n\r\n"
        if not chunk.endswith(self._mark):
            end = chunk.rfind(self._mark)
            end = end + len(self._mark) if end >= 0 else 0
            chunk, self._rest = chunk[:end], chunk[end:]
            if len(self._rest) > MAX_EVENT_BYTES:
                chunk, self._rest = chunk + self._rest, b""
        self.events += chunk.count(self._mark)
        chunk = self._take_notes(chunk)
        if chunk.rstrip().endswith(b"[DONE]"):
            self.done = True
        return chunk

    def finish(self) -> bytes:
        """What is left when the engine ends without closing its last event."""
        rest, self._rest = self._rest, b""
        hidden = _NOTED.search(rest) is not None and self._read(event_data(rest))
        return b"" if hidden or self.failure else rest

    @property
    def generated_events(self) -> int:
        """Events that carried output: for engines that send no usage, each is taken as one token."""
        return max(0, self.events - self.done)

    def _take_notes(self, events: bytes) -> bytes:
        """Read the few events that speak of usage or a failure; the same events, less hidden ones, up to an error."""
        kept: list[bytes] = []
        done = 0
        for found in _NOTED.finditer(events):
            if found.start() < done:
                continue
            begin = events.rfind(self._mark, done, found.start())
            begin = done if begin < 0 else begin + len(self._mark)
            end = events.find(self._mark, found.end())
            if end < 0:
                break
            end += len(self._mark)
            hidden = self._read(event_data(events[begin : end - len(self._mark)]))
            if self.failure is not None:
                self.events -= events.count(self._mark, begin)
                return b"".join((*kept, events[done:begin]))
            kept.append(events[done : begin if hidden else end])
            done = end
        return b"".join((*kept, events[done:])) if done else events

    def _read(self, data: bytes) -> bool:
        """Note what an event says; True if it is usage that the client is not to see."""
        if b'"error"' in data and (failure := failure_in(data)):
            self.failure = failure
            return False
        if given_up(data):
            self.failure = GIVEN_UP
            return False
        try:
            read = _event_decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            read = _Event()
        if read.usage is None:
            return False
        self.usage = read.usage
        if read.choices != []:
            return False
        self.events -= 1
        return self._hide_usage


def event_data(event: bytes) -> bytes:
    """The data lines of one event, joined."""
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = event.replace(b"\r\n", b"\n").split(b"\n")
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
