"""The config streams that this process holds: what each was sent last, and who must wake.

A stream keeps no queue. It remembers what it sent last, and makes the next event from the newest head when its
turn comes, so revisions that a reader was too slow for are merged into one patch.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from controlplane.configs import events
from controlplane.configs.events import Events
from controlplane.configs.head import Head
from controlplane.configs.slices import Slice

# The server takes what it is given into memory without waiting for the reader (granian's ASGI send does not block).
# So one push is in flight at a time: the next waits for the acknowledgement, or this long for readers that send none.
UNACKNOWLEDGED_PUSH_SECONDS = 5.0
# A reader that acknowledges nothing for so long is cut off; it comes back with the revision that it has.
UNACKNOWLEDGED_CLOSE_SECONDS = 60.0


class Opener(NamedTuple):
    """Who holds a target's name, and with which token (its hash). Streams of any other one are outdated."""

    enrolled_at: datetime
    token_hash: str


@dataclass(eq=False)
class Stream:
    """One open stream. Used by the event loop it was opened on; `wake` is called from any thread."""

    target_id: int
    kind: str
    name: str
    # The enrolment and token that opened it.
    opener: Opener
    expires_at: float
    loop: asyncio.AbstractEventLoop
    # What the reader holds, once something was sent or it came with a revision that we know.
    base: tuple[int, Slice] | None = None
    closed: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    _peers_sent: int = 0
    # Revision and time of the newest push, and of the oldest, that was not answered yet.
    _in_flight: tuple[int, float] | None = None
    _unanswered: tuple[int, float] | None = None

    def concerns(self, head: Head, live_gateways: int) -> bool:
        """Whether there is something to say to this stream."""
        if self.kind == "gateway" and live_gateways != self._peers_sent:
            return True
        return self.base is None or self.base[1].hash != head.slice(self.kind, self.name).hash

    def next_event(self, encoded: Events, live_gateways: int, now: float) -> bytes | None:
        """What to send now, and note it as sent; None if there is nothing to say yet."""
        if self.kind == "gateway" and live_gateways != self._peers_sent and self.base is not None:
            self._peers_sent = live_gateways
            return events.peers(max(1, live_gateways))
        head = encoded.head
        slice = head.slice(self.kind, self.name)
        if self.patience_seconds(now) is not None or (self.base is not None and self.base[1].hash == slice.hash):
            return None
        event = encoded.whole(slice) if self.base is None else encoded.patch(*self.base, slice)
        self.base = (head.number, slice)
        self._in_flight = (head.number, now)
        if self._unanswered is None:
            self._unanswered = self._in_flight
        return event

    @property
    def awaited_revision(self) -> int | None:
        """The oldest revision that was pushed and not answered; None if there is none."""
        unanswered = self._unanswered
        return None if unanswered is None else unanswered[0]

    def acknowledged(self, revision: int) -> None:
        """The reader answered (ACK or NACK) for a revision."""
        if self._in_flight is not None and revision >= self._in_flight[0]:
            self._in_flight = self._unanswered = None
        elif self._unanswered is not None and revision >= self._unanswered[0]:
            self._unanswered = self._in_flight

    def forget(self) -> None:
        """The reader holds something else than was thought: send the whole next, in turn."""
        self.base = None
        self.woken.set()

    def over(self, now: float, unix_now: float) -> str | None:
        """Why the stream must end now; None if it need not."""
        if self.closed:
            return "revoked, enrolled anew, the token was replaced, or the process ends"
        if unix_now >= self.expires_at:
            return "the token has expired"
        if self._unanswered is not None and now - self._unanswered[1] > UNACKNOWLEDGED_CLOSE_SECONDS:
            return "nothing was acknowledged"
        return None

    def patience_seconds(self, now: float) -> float | None:
        """How long the next push is still held back for an acknowledgement; None if it is not."""
        if self._in_flight is None:
            return None
        left = self._in_flight[1] + UNACKNOWLEDGED_PUSH_SECONDS - now
        return left if left > 0 else None


class Turnover(NamedTuple):
    """Targets (by id) that have a stream since a moment, that have none since then, and of which one opened meanwhile,
    whether or not it has ended again.
    """

    opened: set[int]
    ended: set[int]
    came: set[int]


class Streams:
    """All open streams. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Stream] = set()
        self._opened: set[int] = set()
        self._ended: set[int] = set()
        self._came: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, stream: Stream) -> None:
        with self._lock:
            self._open.add(stream)
            self._opened.add(stream.target_id)
            self._came.add(stream.target_id)
            self._ended.discard(stream.target_id)

    def remove(self, stream: Stream) -> None:
        with self._lock:
            self._open.discard(stream)
            if not any(other.target_id == stream.target_id for other in self._open):
                self._opened.discard(stream.target_id)
                self._ended.add(stream.target_id)

    def target_ids(self) -> list[int]:
        with self._lock:
            return sorted({stream.target_id for stream in self._open})

    def take_turnover(self) -> Turnover:
        """What came and went since the last call."""
        with self._lock:
            turnover = Turnover(self._opened, self._ended, self._came)
            self._opened, self._ended, self._came = set(), set(), set()
            return turnover

    def announce(self, head: Head, live_gateways: int) -> None:
        """Wake the streams that this head or the number of gateways concerns."""
        with self._lock:
            streams = list(self._open)
        # Not under the lock: the first to ask a head for a slice has it cut, which takes its time.
        _wake(stream for stream in streams if stream.concerns(head, live_gateways))

    def awaited(self) -> dict[int, int]:
        """Target (by id) → the oldest revision that it was sent and did not answer yet."""
        awaited: dict[int, int] = {}
        with self._lock:
            for stream in self._open:
                if (revision := stream.awaited_revision) is not None:
                    awaited[stream.target_id] = min(revision, awaited.get(stream.target_id, revision))
        return awaited

    def acknowledge(self, revisions: dict[int, int]) -> None:
        """Targets (by id) answered for a revision."""
        with self._lock:
            answered = [stream for stream in self._open if stream.target_id in revisions]
        for stream in answered:
            stream.acknowledged(revisions[stream.target_id])
        _wake(answered)

    def close_outdated(self, openers: dict[int, Opener | None]) -> None:
        """End the streams of targets (by id) that were revoked or are gone (None), and those of other openers.

        Compared by being equal, not by time: the clock that an enrolment was stamped with may have been set back.
        """
        self._close(lambda stream: openers.get(stream.target_id, stream.opener) != stream.opener)

    def forget(self, target_id: int) -> None:
        """A target turned out to hold something else than its streams were thought to have left it with."""
        with self._lock:
            mistaken = [stream for stream in self._open if stream.target_id == target_id]
        for stream in mistaken:
            if not stream.loop.is_closed():
                stream.loop.call_soon_threadsafe(stream.forget)

    def close_all(self) -> None:
        self._close(lambda _: True)

    def _close(self, ends: Callable[[Stream], bool]) -> None:
        with self._lock:
            ended = [stream for stream in self._open if ends(stream)]
        for stream in ended:
            stream.closed = True
        _wake(ended)


def _wake(streams: Iterable[Stream]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Stream]] = defaultdict(list)
    for stream in streams:
        by_loop[stream.loop].append(stream)
    for loop, sleeping in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_set, sleeping)


def _set(streams: list[Stream]) -> None:
    for stream in streams:
        stream.woken.set()
