"""Server-sent events, read from chunks as they arrive (WHATWG HTML, section 9.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class EventTooLarge(ValueError):
    """An event is longer than a reader is willing to hold."""


class ServerSentEvent(NamedTuple):
    """One whole event: its name (`message` if it gave none) and its data lines, joined by line ends."""

    name: str
    data: bytes


class SseParser:
    """Turns chunks into whole events. An event whose blank line has not come is not an event.

    Comments, `id` and `retry` are skipped; a reader of a config stream resumes by revision instead.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._line = bytearray()
        self._name = ""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """The events that this chunk completes. Raises: EventTooLarge."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._grow(part)
            line = bytes(self._line).removesuffix(b"\r")
            self._line.clear()
            if line:
                self._field(line)
            elif self._data:
                yield ServerSentEvent(self._name or "message", b"\n".join(self._data))
                self._name, self._data, self._data_bytes = "", [], 0
            else:
                self._name = ""
        self._grow(rest)

    def _grow(self, part: bytes) -> None:
        if self._data_bytes + len(self._line) + len(part) > self._limit_bytes:
            raise EventTooLarge(f"an event is longer than {self._limit_bytes} bytes")
        self._line += part

    def _field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
