"""A target client with a record of what it was told, and slices that differ in one number."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.wire.examples import gateway_content
from tests.wire.fake_control import DEADLINE_SECONDS
from wire.snapshot import GatewaySnapshot, Snapshot
from wire.target import Pace, Reenrol, TargetClient

QUICK = Pace(retry_base_seconds=0.01, retry_cap_seconds=0.05, refused_cap_seconds=0.05)


class Target:
    """A client with what it was told."""

    def __init__(
        self,
        control_url: str,
        state_dir: Path,
        pace: Pace = QUICK,
        enrol_again: Reenrol | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.applied: list[tuple[int, Snapshot]] = []
        self.peers: list[int] = []
        self.refusal: Exception | None = None
        self.client = TargetClient(
            control_url=control_url,
            state_dir=state_dir,
            on_snapshot=self._apply,
            on_peers=self._hear_of_peers,
            enrol_again=enrol_again,
            clock=clock,
            pace=pace,
        )

    async def _hear_of_peers(self, live_gateways: int) -> None:
        self.peers.append(live_gateways)

    def _apply(self, snapshot: Snapshot, revision: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.applied.append((revision, snapshot))

    @property
    def tpm_limit(self) -> Any:
        snapshot = self.applied[-1][1]
        assert isinstance(snapshot, GatewaySnapshot)
        return snapshot.tenants["acme"].tpm_limit

    async def until(self, what: str, check: Callable[[], Any]) -> None:
        """Wait for `check` to hold; a TimeoutError's traceback names `what` did not come."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not check():  # noqa: ASYNC110 - what it polls has no event
                await asyncio.sleep(0.005)

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.client.run())
        try:
            yield self
            assert not task.done(), "the client ended by itself"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def limited(tpm_limit: int) -> dict[str, Any]:
    content = gateway_content()
    content["tenants"]["acme"]["tpm_limit"] = tpm_limit
    return content


def limit_patch(tpm_limit: int) -> dict[str, Any]:
    return {"tenants": {"acme": {"tpm_limit": tpm_limit}}}
