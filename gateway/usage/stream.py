"""The events of a stream: cut whole, counted, and those few read that speak of usage or a failure."""

from __future__ import annotations

import re

import msgspec

from gateway.usage.counts import Document, Usage, document_decoder
from gateway.usage.failures import GIVEN_UP, failure_in, given_up
from policy.asks import Endpoint

# Longer than any event of an OpenAI stream; a longer one is passed on in parts, unread.
MAX_EVENT_BYTES = 1024 * 1024
# JSON escapes quotes in text, so these bytes are a key or a value, or a text that is this very word.
_NOTED = re.compile(rb'"(?:usage|error|abort)"')
# The events with output of an API that has others as well.
_OUTPUT: dict[Endpoint, re.Pattern[bytes]] = {
    "responses": re.compile(rb'"type":\s*"response\.[a-z_.]+\.delta"'),
    "messages": re.compile(rb'"type":\s*"content_block_delta"'),
}
# Sent by engines before they have taken the request in.
_OPENING: dict[Endpoint, re.Pattern[bytes]] = {
    "responses": re.compile(rb'"type":\s*"response\.(?:created|in_progress|queued)"')
}
# More than any engine sends; what follows them in a chunk is looked at as one.
_OPENING_EVENTS = 8
_NO_EVENT = ("its first event is no JSON object", None)


class StreamReader:
    """Cuts an event stream into whole events, counts them, and takes the usage out.

    Whole events leave as they came. `hide_usage` drops the event that carries usage and no choices, which the
    client did not ask for. An error event, or one that says that the engine gave up, sets `failure`; it and what
    follows it do not leave. Comments, and the events that open a response, wait for the first other event, so that a
    failure still comes first.
    """

    def __init__(self, *, hide_usage: bool, endpoint: Endpoint = "chat") -> None:
        self.events = 0
        self.done = False
        self.failure: tuple[str, int | None] | None = None
        self._prompt_tokens: int | None = None
        self._output_tokens: int | None = None
        self._hide_usage = hide_usage
        self._output, self._output_events = _OUTPUT.get(endpoint), 0
        self._opening = _OPENING.get(endpoint)
        self._opened = False
        self._held = b""
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
        chunk = self._take_notes(chunk)
        # Text has no line ends of its own in JSON, so a colon behind a mark begins a comment.
        comments = chunk.count(self._mark + b":") + chunk.startswith(b":")
        self.events += chunk.count(self._mark) - comments
        if self._output is not None:
            self._output_events += len(self._output.findall(chunk))
        if chunk.rstrip().endswith(b"[DONE]"):
            self.done = True
        return chunk if self._opened else self._open(chunk)

    def finish(self) -> bytes:
        """What is left when the engine ends without closing its last event."""
        rest, self._rest = self._rest, b""
        alone = _NOTED.search(rest) is not None and self._read(event_data(rest))
        return b"" if (alone and self._hide_usage) or self.failure else rest

    @property
    def usage(self) -> Usage | None:
        """What the engine says that it used; None until it has said both."""
        if self._prompt_tokens is None or self._output_tokens is None:
            return None
        return Usage(self._prompt_tokens, self._output_tokens)

    @property
    def generated_events(self) -> int:
        """Events that carried output: for engines that send no usage, each is taken as one token."""
        return max(0, self.events - self.done) if self._output is None else self._output_events

    def used_tokens(self, measured_prompt_tokens: int) -> tuple[int, int]:
        """(prompt, output): what the engine says, and where it does not, what was measured and counted."""
        prompt, output = self._prompt_tokens, self._output_tokens
        return (
            measured_prompt_tokens if prompt is None else prompt,
            self.generated_events if output is None else output,
        )

    def _open(self, events: bytes) -> bytes:
        """What may leave once the first event is there that answers the request; until then nothing."""
        held, self._held = self._held + events, b""
        for event in held.split(self._mark, _OPENING_EVENTS):
            data = event_data(event).lstrip()
            if data and not (self._opening is not None and self._opening.search(data)):
                self._opened = True
                if not data.startswith((b"{", b"[DONE]")):
                    self.failure = _NO_EVENT
                    return b""
                return held
        self._opened = len(held) > MAX_EVENT_BYTES
        if not self._opened:
            self._held = held
        return held if self._opened and not self.failure else b""

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
            alone = self._read(event_data(events[begin : end - len(self._mark)]))
            if self.failure is not None:
                return b"".join((*kept, events[done:begin]))
            kept.append(events[done : begin if alone and self._hide_usage else end])
            if alone and not self._hide_usage:
                # It will be counted with those that leave, and carries no output.
                self.events -= 1
            done = end
        return b"".join((*kept, events[done:])) if done else events

    def _read(self, data: bytes) -> bool:
        """Note what an event says; True if it says its usage and nothing else."""
        if b'"error"' in data and (failure := failure_in(data)):
            self.failure = failure
            return False
        if given_up(data):
            self.failure = GIVEN_UP
            return False
        try:
            read = document_decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            read = Document()
        if read.first is not None:
            self._prompt_tokens = read.first.prompt
        if read.final is None:
            return False
        if read.final.prompt is not None:
            self._prompt_tokens = read.final.prompt
        self._output_tokens = read.final.output
        return read.choices == []


def event_data(event: bytes) -> bytes:
    """The data lines of one event, joined."""
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = event.replace(b"\r\n", b"\n").split(b"\n")
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
