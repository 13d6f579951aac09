"""The newest revisions in memory, as this process last read them. Thread-safe."""

from __future__ import annotations

import threading
from collections import OrderedDict

from controlplane.configs.head import Head
from controlplane.configs.history import Damaged, Stored, content_at, ground_of
from controlplane.configs.models import Revision
from controlplane.configs.slices import Decrypt
from controlplane.core.errors import NotFound
from wire.canonical import content_hash

# Heads share what did not change, so many are cheap. A target that comes back within so many gets a patch.
KEPT_HEADS = 64


class Heads:
    def __init__(self, decrypt: Decrypt) -> None:
        self._decrypt = decrypt
        self._lock = threading.Lock()
        self._heads: OrderedDict[int, Head] = OrderedDict()
        self._newest_hash = ""

    @property
    def newest(self) -> Head | None:
        """The newest that is in memory; see `refresh`."""
        return next(reversed(self._heads.values()), None)

    def refresh(self) -> Head | None:
        """The newest that is in the database; None where nothing was published. Raises Damaged, DatabaseError."""
        with self._lock:
            last = Revision.objects.order_by("-number").values_list("number", "hash").first()
            if last is None:
                self._heads.clear()
                return None
            number, digest = last
            newest = self.newest
            if newest is not None and newest.number == number and self._newest_hash == digest:
                return newest
            if newest is None or newest.number >= number or not self._catch_up(newest, number, digest):
                # First start, or the database was restored from a backup.
                self._load(number, digest)
            self._newest_hash = digest
            return self.newest

    def at(self, number: int) -> Head | None:
        """The head of a revision, from memory or read anew; None for one that does not exist (any more)."""
        newest = self.refresh()
        if newest is None or number > newest.number:
            return None
        if (known := self._heads.get(number)) is not None:
            return known
        try:
            stored = content_at(number)
        except NotFound:
            return None
        return Head(*stored, self._decrypt)

    def recent(self, number: int) -> Head | None:
        """The head of a revision if it is in memory."""
        return self._heads.get(number)

    def stored(self) -> Stored | None:
        head = self.newest
        return Stored(head.number, head.content, head.published_at) if head else None

    def _catch_up(self, newest: Head, number: int, digest: str) -> bool:
        """Read on to a revision; False where that does not lead to its hash."""
        missing = Revision.objects.filter(number__gt=newest.number, number__lte=number).order_by("number")
        rows = list(missing.values_list("number", "patch", "published_at"))
        if len(rows) != number - newest.number or len(rows) > KEPT_HEADS:
            return False
        followed = []
        for row in rows:
            newest = newest.next(*row)
            followed.append(newest)
        if content_hash(newest.content) != digest:
            return False
        for head in followed:
            self._keep(head)
        return True

    def _load(self, number: int, digest: str) -> None:
        """The last whole and what came after it, so that targets which come back after a restart get patches."""
        self._heads.clear()
        head = Head(*ground_of(number), self._decrypt)
        self._keep(head)
        if not self._catch_up(head, number, digest):
            self._heads.clear()
            raise Damaged(f"revision {number} does not have the hash that it was published with")

    def _keep(self, head: Head) -> None:
        self._heads[head.number] = head
        while len(self._heads) > KEPT_HEADS:
            self._heads.popitem(last=False)
