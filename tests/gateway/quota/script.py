"""The ledger's script on a real Redis, whose time a test can move on."""

from __future__ import annotations

import secrets
from typing import cast

import redis

from gateway.quota.ledger import NONE, SCRIPT, Standing, Terms, read_standing

DAY_MS = 86_400_000
LEASE_MS = 90_000


class Script:
    """One tenant's quota. `now_ms` is the time of the last answer, with what was `moved`."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url)
        self.key = f"headworks:quota:{{{secrets.token_hex(8)}}}"
        self.moved_ms = 0
        self.now_ms = 0
        self._script = self.client.register_script(SCRIPT)

    def call(self, *arguments: str | int) -> Standing | None:
        answer = self._script(keys=[self.key, f"{self.key}:leases"], args=[" ".join(map(str, arguments))])
        standing = read_standing(cast("bytes", answer))
        if standing is not None:
            self.now_ms = standing.at_ms + self.moved_ms
        return standing

    def told(self, *arguments: str | int) -> Standing:
        standing = self.call(*arguments)
        assert standing is not None
        return standing

    def reserve(
        self, limits: Terms, request_id: str, tokens: int, sequences: int = 1, lease_ms: int = LEASE_MS
    ) -> Standing:
        return self.told("reserve", *limits, request_id, tokens, 1, sequences, lease_ms)

    def settle(self, request_id: str, tokens: int, requests: int = 1) -> Standing | None:
        return self.call("settle", request_id, tokens, requests)

    def move(self, ms: int) -> None:
        """As if so much time had gone by since everything that was done."""
        leases = f"{self.key}:leases"
        for field in ("at", "revision_at", "merging", "keep", "day_start", "day_end"):
            self.client.hincrby(self.key, field, -ms)
        for lease, lapses in cast("list[tuple[bytes, float]]", self.client.zrange(leases, 0, -1, withscores=True)):
            self.client.zadd(leases, {lease: lapses - ms})
        self.moved_ms += ms


def terms(
    tpm: int = NONE, rpm: int = NONE, parallel: int = NONE, budget: int = NONE, revision: int = 1, day_end_ms: int = 0
) -> Terms:
    end = day_end_ms or 2**52
    return Terms(revision, tpm, rpm, parallel, budget, 0, end, end + DAY_MS)
