"""The events of one head as bytes, encoded once for all the streams that need them."""

from __future__ import annotations

from controlplane.configs.head import Head
from controlplane.configs.slices import Slice
from wire.canonical import diff_patch
from wire.messages import PatchEvent, PeersEvent, SnapshotEvent, encode_sse

PING = b": ping\n\n"


class Events:
    def __init__(self, head: Head) -> None:
        self.head = head
        self._encoded: dict[tuple[int, str, str], bytes] = {}

    def whole(self, slice: Slice) -> bytes:
        key = (0, "", slice.hash)
        if key not in self._encoded:
            self._encoded[key] = encode_sse("snapshot", SnapshotEvent(self.head.number, slice.hash, slice.content))
        return self._encoded[key]

    def patch(self, from_revision: int, before: Slice, slice: Slice) -> bytes:
        key = (from_revision, before.hash, slice.hash)
        if key not in self._encoded:
            patch = diff_patch(before.content, slice.content)
            self._encoded[key] = encode_sse("patch", PatchEvent(from_revision, self.head.number, slice.hash, patch))
        return self._encoded[key]


def peers(live_gateways: int) -> bytes:
    return encode_sse("peers", PeersEvent(live_gateways))
