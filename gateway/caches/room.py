"""The memory that all kept answers share: whatever is kept, the least recently used goes when there is no room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

# What an entry costs beside its bytes: its objects, its keys, its places in the maps.
_ENTRY_BYTES = 600


@dataclass(slots=True, eq=False, weakref_slot=True)
class Answer:
    """One answer as it was sent. `made_at_ms`: monotonic. `stream`: the body is server-sent events.

    `kept`: its places in the room, by which all of them are found when it turns out to be wrong.
    """

    body: bytes
    stream: bool
    made_at_ms: int
    kept: list[Kept] = field(default_factory=list)

    def age_ms(self, now_ms: int) -> int:
        return max(0, now_ms - self.made_at_ms)


class Kept:
    """An answer that has a place. `forget` takes it off its shelf; the room calls it once, when the place ends."""

    __slots__ = ("__weakref__", "answer", "forget", "size_bytes")

    def __init__(self, answer: Answer, forget: Callable[[], None], more_bytes: int = 0) -> None:
        self.answer, self.forget = answer, forget
        self.size_bytes = len(answer.body) + more_bytes + _ENTRY_BYTES


class Room:
    """`limit_bytes` for kept answers, and a quarter as much for those that are being recorded."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._recording_bytes = 0
        self._by_use: OrderedDict[Kept, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_use)

    def __contains__(self, kept: Kept) -> bool:
        return kept in self._by_use

    def put(self, kept: Kept) -> None:
        """Give it a place; it may be this one that goes at once, if it is larger than all there is."""
        self._by_use[kept] = None
        kept.answer.kept.append(kept)
        self.used_bytes += kept.size_bytes
        while self.used_bytes > self.limit_bytes:
            self.drop(next(iter(self._by_use)))

    def use(self, kept: Kept) -> None:
        self._by_use.move_to_end(kept)

    def drop(self, kept: Kept) -> bool:
        """Whether it had a place until now."""
        if kept not in self._by_use:
            return False
        del self._by_use[kept]
        kept.answer.kept.remove(kept)
        self.used_bytes -= kept.size_bytes
        kept.forget()
        return True

    def may_record(self, more_bytes: int) -> bool:
        """Take `more_bytes` for an answer that is being recorded, if there are as many."""
        if self._recording_bytes + more_bytes > self.limit_bytes // 4:
            return False
        self._recording_bytes += more_bytes
        return True

    def recorded(self, taken_bytes: int) -> None:
        """Give back what `may_record` took."""
        self._recording_bytes -= taken_bytes


class Recorder:
    """Hears an answer part by part (`Exchange.on_part`), and gives up one that is too large to be kept."""

    __slots__ = ("_given_up", "_limit_bytes", "_parts", "_room", "_size_bytes")

    def __init__(self, room: Room, limit_bytes: int) -> None:
        self._room, self._limit_bytes = room, limit_bytes
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._given_up = False

    def hear(self, part: bytes) -> None:
        if self._given_up:
            return
        if self._size_bytes + len(part) > self._limit_bytes or not self._room.may_record(len(part)):
            self._given_up = True
            self.end()
            return
        self._parts.append(part)
        self._size_bytes += len(part)

    def end(self) -> bytes | None:
        """The whole answer, and the recording's memory given back; None for one that was given up, or never came."""
        body = b"".join(self._parts) if self._parts else None
        self._room.recorded(self._size_bytes)
        self._parts, self._size_bytes = [], 0
        return body
