"""Where lines wait until interactive requests leave them room: one room a pool of this gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gateway.batches.metrics import RoomMoment
from gateway.refusals import Refused
from policy.batches.room import BatchRoom, Options, Sight

if TYPE_CHECKING:
    from gateway.exchange import Exchange
    from gateway.pools import Pools
    from gateway.pools.pool import PoolState

_LOOK_SECONDS = 0.05


class Rooms:
    """Lines enter before they take quota, and leave when they have ended. Use it inside a running event loop."""

    def __init__(self, pools: Pools, batch_class: str, options: Options, now_ms: Callable[[], int]) -> None:
        self._pools, self._class, self._options, self._now_ms = pools, batch_class, options, now_ms
        self._rooms: dict[str, _Room] = {}
        self._closed = False

    async def run(self) -> None:
        """Look at the pools again and again, until cancelled: much of what gives room tells nobody."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        for name, room in list(self._rooms.items()):
            pool = self._pools.pool(name)
            if pool is None:
                # The pipeline says what has become of it.
                room.release(len(room.waiting))
                if not room.running:
                    del self._rooms[name]
            elif room.running or room.waiting:
                self._serve(room, pool)

    def free(self, name: str) -> int:
        """How many lines may start in a pool now, those that wait for it already not among them."""
        pool = self._pools.pool(name)
        if pool is None or self._closed:
            return 0
        room = self._room(name)
        sight, now_ms = self._sight(room, pool), self._now_ms()
        room.policy.look(sight, now_ms)
        return max(0, room.policy.free(sight, now_ms) - len(room.waiting))

    def limit(self, name: str) -> int:
        return self._room(name).policy.limit

    async def enter(self, x: Exchange, name: str) -> None:
        """Wait until a line may start in its pool. Raises: Refused (`draining`)."""
        room = self._room(name)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        room.waiting[turn] = x
        try:
            pool = self._pools.pool(name)
            if self._closed:
                self._refuse(turn)
            elif pool is None:
                turn.set_result(None)
            elif len(room.waiting) == 1:
                self._serve(room, pool)
            await turn
        finally:
            room.waiting.pop(turn, None)
        if not room.running:
            room.busy_since = time.monotonic()
        room.running[x] = None

    def leave(self, x: Exchange) -> None:
        """A line has ended, if it had entered."""
        for name, room in self._rooms.items():
            if x in room.running:
                del room.running[x]
                if not room.running:
                    room.idle_since = time.monotonic()
                pool = self._pools.pool(name)
                if pool is not None and room.waiting:
                    self._serve(room, pool)
                return

    def refused(self, name: str, rest_ms: int) -> None:
        """A pool had no place for a line that had entered."""
        self._room(name).policy.refused(self._now_ms(), rest_ms)

    def saw(self, x: Exchange, name: str) -> None:
        """An interactive request has ended. One that came while lines came or went tells nothing."""
        if x.first_byte_at is None or x.reader is None:
            return
        room = self._room(name)
        ttft_ms, lines = round((x.first_byte_at - x.arrived) * 1000), len(room.running)
        since = room.busy_since if lines else room.idle_since
        if x.arrived >= since:
            room.policy.first_token(ttft_ms, x.size.tokens, round(x.first_byte_at * 1000), lines)

    def close(self) -> None:
        """The gateway drains: whoever waits is told so."""
        self._closed = True
        for room in self._rooms.values():
            for turn in room.waiting:
                self._refuse(turn)

    def moments(self) -> Iterator[RoomMoment]:
        for name, room in self._rooms.items():
            yield RoomMoment(name, len(room.running), len(room.waiting), room.policy.limit)

    def _room(self, name: str) -> _Room:
        room = self._rooms.get(name)
        if room is None:
            room = self._rooms[name] = _Room(BatchRoom(self._options, self._now_ms()))
        return room

    def _serve(self, room: _Room, pool: PoolState) -> None:
        sight, now_ms = self._sight(room, pool), self._now_ms()
        room.policy.look(sight, now_ms)
        room.release(room.policy.free(sight, now_ms))

    def _sight(self, room: _Room, pool: PoolState) -> Sight:
        taking = pool.taking()
        known = [each for each in taking if each[1].admissible_tokens]
        held = sum(state.reserved_tokens + kv.others_tokens for state, kv in known)
        admissible = sum(kv.admissible_tokens or 0 for _, kv in known)
        # Those that have entered hold a place already, at an engine or in a moment.
        coming = room.released + sum(1 for x in room.running if x.placement is None)
        running, waiting = pool.choice.queues() or (None, None)
        return Sight(
            interactive_waiting=sum(1 for claim in pool.line if claim.priority_class != self._class),
            engines_running=running,
            engines_waiting=waiting,
            kv_permille=1000 * held // admissible if admissible else None,
            in_flight=pool.in_flight + coming,
            lines=len(room.running),
            engines=len(taking),
            concurrency=pool.concurrency.limit,
            ttft_slo_ms=pool.pool.ttft_slo_ms or None,
        )

    @staticmethod
    def _refuse(turn: asyncio.Future[None]) -> None:
        if not turn.done():
            turn.set_exception(Refused("draining", "this gateway is shutting down"))


class _Room:
    """`waiting`: in order. `busy_since`, `idle_since`: when lines last began, and ended, to run; monotonic seconds."""

    def __init__(self, policy: BatchRoom) -> None:
        self.policy = policy
        self.waiting: dict[asyncio.Future[None], Exchange] = {}
        self.running: dict[Exchange, None] = {}
        self.busy_since = self.idle_since = 0.0

    @property
    def released(self) -> int:
        """Lines whose turn has come, and whose tasks have not run since."""
        return sum(1 for turn in self.waiting if turn.done())

    def release(self, lines: int) -> None:
        for turn in self.waiting:
            if lines <= 0:
                return
            if not turn.done():
                turn.set_result(None)
                lines -= 1
