"""XIDs counted once, though NVML and the kernel log both tell of most of them, and some lines say the same twice."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from gpu_agent.nvml.kmsg import PciAddress

# `text`: the line that says in words what the XID beside it says by number.
XidSource = Literal["nvml", "kmsg", "text"]
# Reports of one XID reach the agent within moments. NVML's come late while another GPU is lost.
SAME_XID_MS = 5_000
# A broken part can throw hundreds of one XID a minute: one event in this time says how many there were.
EVENT_SPACING_MS = 10_000
_OPEN_LIMIT = 256


class Occurrence(Struct):
    at_ms: int
    told_by: set[XidSource]


class KeptStream(Struct, frozen=True):
    """One XID of one GPU, as a restart finds it again."""

    pci: PciAddress
    xid: int
    open: list[Occurrence]
    event_at_ms: int
    unsaid: int


@dataclass
class _Stream:
    """One XID of one GPU."""

    open: deque[Occurrence] = field(default_factory=lambda: deque(maxlen=_OPEN_LIMIT))
    event_at_ms: int | None = None
    unsaid: int = 0


@dataclass(frozen=True)
class Entry:
    """A new occurrence of an XID. `say`: it is worth an event. `unsaid`: so many before it had none of their own."""

    say: bool
    unsaid: int


class XidLedger:
    """Pairs what the sources tell. Each occurrence is told at most once by each source. No I/O.

    `kept` comes from a ledger before a restart: the kernel log is scanned again then, NVML tells nothing again.
    """

    def __init__(self, kept: Iterable[KeptStream] = ()) -> None:
        self._streams: defaultdict[tuple[PciAddress, int], _Stream] = defaultdict(_Stream)
        for stream in kept:
            occurrences = deque(stream.open, maxlen=_OPEN_LIMIT)
            self._streams[stream.pci, stream.xid] = _Stream(occurrences, stream.event_at_ms, stream.unsaid)
        self.last: dict[PciAddress, int] = {}
        self.total: defaultdict[PciAddress, int] = defaultdict(int)

    def add(self, source: XidSource, pci: PciAddress, xid: int, at_ms: int) -> Entry | None:
        """None: another source has told of this occurrence already."""
        stream = self._streams[pci, xid]
        while stream.open and stream.open[0].at_ms < at_ms - SAME_XID_MS:
            stream.open.popleft()
        for occurrence in stream.open:
            if source not in occurrence.told_by and abs(occurrence.at_ms - at_ms) <= SAME_XID_MS:
                occurrence.told_by.add(source)
                return None
        stream.open.append(Occurrence(at_ms, {source}))
        self.last[pci] = xid
        self.total[pci] += 1
        if stream.event_at_ms is not None and 0 <= at_ms - stream.event_at_ms < EVENT_SPACING_MS:
            stream.unsaid += 1
            return Entry(say=False, unsaid=0)
        unsaid, stream.unsaid, stream.event_at_ms = stream.unsaid, 0, at_ms
        return Entry(say=True, unsaid=unsaid)

    def kept(self) -> list[KeptStream]:
        """What was said by an event so far, for a ledger after a restart."""
        return [
            KeptStream(pci, xid, list(stream.open), stream.event_at_ms, stream.unsaid)
            for (pci, xid), stream in self._streams.items()
            if stream.event_at_ms is not None
        ]
