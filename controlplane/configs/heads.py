"""The newest revisions in memory, as this process last read them. Thread-safe."""

from __future__ import annotations

import threading
from collections import OrderedDict

from controlplane.configs.head import Head, overlay_of
from controlplane.configs.history import Damaged, Stored, content_at, ground_of
from controlplane.configs.models import Revision
from controlplane.configs.slices import Decrypt
from controlplane.core.errors import NotFound
from wire.canonical import content_hash, merge_patch

# Heads share what did not change, so many are cheap. A target that comes back within so many gets a patch.
KEPT_HEADS = 64


class Heads:
    """`newest` is the newest that is in memory (see `refresh`); it changes only once all of it is there.

    `damaged` is why the newest one in the database could not be read when that was last tried; None where it could.
    """

    def __init__(self, decrypt: Decrypt) -> None:
        self._decrypt = decrypt
        self._lock = threading.Lock()
        self._heads: OrderedDict[int, Head] = OrderedDict()
        self._stored: Stored | None = None
        self.newest: Head | None = None
        self.damaged: Damaged | None = None

    def refresh(self) -> Head | None:
        """The newest that is in the database; None where nothing was published. Raises Damaged, DatabaseError."""
        with self._lock:
            try:
                newest, self.damaged = self._refreshed(), None
            except Damaged as damaged:
                # Soon another one is published in its place.
                damaged.retry_after_seconds = 1
                self.damaged = damaged
                raise
            return newest

    def at(self, number: int) -> Head | None:
        """The head of a revision, from memory or read anew; None for one that does not exist (any more)."""
        newest = self.refresh()
        if newest is None or number > newest.number:
            return None
        if (known := self._heads.get(number)) is not None:
            return known
        try:
            return self._made(content_at(number))
        except NotFound:
            return None

    def recent(self, number: int) -> Head | None:
        """The head of a revision if it is in memory."""
        return self._heads.get(number)

    def stored(self) -> Stored | None:
        """The newest that is in memory, for the publisher to go on from."""
        return self._stored

    def _refreshed(self) -> Head | None:
        last = Revision.objects.order_by("-number").values_list("number", "hash").first()
        if last is None:
            self._heads, self._stored, self.newest = OrderedDict(), None, None
            return None
        number, digest = last
        known = self._stored
        if known is not None and (known.number, known.hash) == (number, digest):
            return self.newest
        newest = self.newest
        followed = self._followed(newest, number, digest) if newest is not None and newest.number < number else None
        if followed is None:
            # First start, or the database was restored from a backup.
            followed = self._loaded(number, digest)
            self._heads = OrderedDict()
        for head in followed:
            self._keep(head)
        newest = followed[-1]
        self._stored = Stored(newest.number, newest.content, newest.published_at, digest)
        self.newest = newest
        return newest

    def _followed(self, newest: Head, number: int, digest: str) -> list[Head] | None:
        """The heads after `newest` up to a revision; None where its patches do not lead to the revision's hash."""
        missing = Revision.objects.filter(number__gt=newest.number, number__lte=number).order_by("number")
        rows = list(missing.values_list("number", "patch", "published_at", "stage"))
        if len(rows) != number - newest.number or len(rows) > KEPT_HEADS:
            return None
        content = newest.content
        for _, patch, *_ in rows:
            content = merge_patch(content, patch)
        # Before heads are made of them: those of a damaged revision may be anything.
        if content_hash(content) != digest:
            return None
        followed = []
        for row in rows:
            newest = newest.next(*row[:3], stage=overlay_of(row[3]))
            followed.append(newest)
        return followed

    def _loaded(self, number: int, digest: str) -> list[Head]:
        """The last whole and what came after it, so that targets which come back after a restart get patches."""
        ground = self._made(ground_of(number))
        followed = self._followed(ground, number, digest)
        return [self._made(content_at(number))] if followed is None else [ground, *followed]

    def _made(self, stored: Stored) -> Head:
        return Head(stored.number, stored.content, stored.published_at, self._decrypt, overlay_of(stored.stage))

    def _keep(self, head: Head) -> None:
        self._heads[head.number] = head
        while len(self._heads) > KEPT_HEADS:
            self._heads.popitem(last=False)
