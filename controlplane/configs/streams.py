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

from controlplane.configs import events
from controlplane.configs.events import Events
from controlplane.configs.head import Head
from controlplane.configs.slices import Slice

# The server takes what it is given into memory without waiting for the reader (granian's ASGI send does not block).
# So one push is in flight at a time: the next waits for the acknowledgement, or this long for readers that send none.
UNACKNOWLEDGED_PUSH_SECONDS = 5.0
# A reader that acknowledges nothing for so long is cut off; it comes back with the revision that it has.
UNACKNOWLEDGED_CLOSE_SECONDS = 60.0


@dataclass(eq=False)
class Stream:
    """One open stream. Used by the event loop it was opened on; `wake` is called from any thread."""

    target_id: int
    kind: str
    name: str
    # Of the enrolment and token that opened it.
    enrolled_at: datetime
    expires_at: float
    loop: asyncio.AbstractEventLoop
    # What the reader holds, once something was sent or it came with a revision that we know.
    base: tuple[int, Slice] | None = None
    closed: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    _peers_sent: int = 0
    # Revision and time of the push in flight; time of the oldest push since the last acknowledgement.
    _in_flight: tuple[int, float] | None = None
    _unacknowledged_since: float | None = None

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
        if self.base is None:
            event = encoded.whole(slice)
        elif self.base[1].hash == slice.hash or self.patience_seconds(now) is not None:
            return None
        else:
            event = encoded.patch(*self.base, slice)
        self.base = (head.number, slice)
        self._in_flight = (head.number, now)
        if self._unacknowledged_since is None:
            self._unacknowledged_since = now
        return event

    def acknowledged(self, revision: int) -> None:
        """The reader answered (ACK or NACK) for a revision."""
        self._unacknowledged_since = None
        if self._in_flight is not None and revision >= self._in_flight[0]:
            self._in_flight = None

    def over(self, now: float, unix_now: float) -> str | None:
        """Why the stream must end now; None if it need not."""
        if self.closed:
            return "revoked, enrolled anew, or the process ends"
        if unix_now >= self.expires_at:
            return "the token has expired"
        since = self._unacknowledged_since
        if since is not None and now - since > UNACKNOWLEDGED_CLOSE_SECONDS:
            return "nothing was acknowledged"
        return None

    def patience_seconds(self, now: float) -> float | None:
        """How long the next push is still held back for an acknowledgement; None if it is not."""
        if self._in_flight is None:
            return None
        left = self._in_flight[1] + UNACKNOWLEDGED_PUSH_SECONDS - now
        return left if left > 0 else None


class Streams:
    """All open streams. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Stream] = set()
        self._opened: set[int] = set()
        self._ended: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, stream: Stream) -> None:
        with self._lock:
            self._open.add(stream)
            self._opened.add(stream.target_id)
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

    def take_turnover(self) -> tuple[set[int], set[int]]:
        """Targets whose streams opened and ended since the last call."""
        with self._lock:
            turnover = self._opened, self._ended
            self._opened, self._ended = set(), set()
            return turnover

    def announce(self, head: Head, live_gateways: int) -> None:
        """Wake the streams that this head or the number of gateways concerns."""
        with self._lock:
            concerned = [stream for stream in self._open if stream.concerns(head, live_gateways)]
        _wake(concerned)

    def acknowledge(self, revisions: dict[int, int]) -> None:
        """Targets (by id) answered for a revision."""
        with self._lock:
            answered = [stream for stream in self._open if stream.target_id in revisions]
        for stream in answered:
            stream.acknowledged(revisions[stream.target_id])
        _wake(answered)

    def close_outdated(self, enrolments: dict[int, datetime | None]) -> None:
        """End the streams of targets (by id) that were revoked (None) or enrolled after the stream was opened."""

        def outdated(stream: Stream) -> bool:
            enrolled_at = enrolments.get(stream.target_id, stream.enrolled_at)
            return enrolled_at is None or enrolled_at > stream.enrolled_at

        self._close(outdated)

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
