"""The quotas of all tenants as all gateways count them together, on one Redis.

Each request asks once, and what it used is told when it has ended. Operations go over one connection in the order in
which they were asked for, as many at once as have gathered while the last answer was awaited. What must not be lost
waits here while the Redis is away; what it can no longer change, since its lease has lapsed, is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from typing import NamedTuple, cast

from redis.exceptions import RedisError

from gateway.quota.unreadable import Unreadable
from gateway.redis_link import RedisLink
from gateway.tasks import end
from policy.bucket import BucketState

log = logging.getLogger("headworks.gateway.quota")
SCRIPT = files("gateway.quota").joinpath("ledger.lua").read_text()
# Lua counts in doubles: up to here, levels of 1/60,000 of a token are whole.
LARGEST = 10**11
NONE = -1
_BATCH = 128
# Of the tenants about whom the Redis must be told something when it is back, so many with each batch: all at once would
# hold up this process, and every request behind them, for seconds.
_TENANTS_A_BATCH = 16
_WAITING_MAX = 100_000
_REFUSALS_MAX = 5
_UNREADABLE = b"unreadable "
# Of a lease that there is not: it changes nothing, and tells whether the state can be read.
_LOOK = ("settle", "-", 0, 0)


class Terms(NamedTuple):
    """A tenant's limits as the script takes them: NONE is no limit; times are epoch milliseconds."""

    revision: int
    tpm: int
    rpm: int
    parallel: int
    budget: int
    day_start_ms: int
    day_end_ms: int
    following_day_end_ms: int


class Standing(NamedTuple):
    """A tenant's quota at `at_ms` of the Redis' clock. `born` tells a state from one that was there before it."""

    granted: bool
    at_ms: int
    born: int
    tokens: BucketState | None
    requests: BucketState | None
    parallel_limit: int
    running: int
    budget: int
    taken: int
    day_start_ms: int
    day_end_ms: int


class Operation:
    """One call of the script. `answered` hears its standing: None where the tenant has no state.

    `until_ms` (monotonic): until then it is kept while the Redis is away. 0: it fails at once, and `answered` is told.
    """

    __slots__ = ("answered", "arguments", "refusals", "tenant", "until_ms")

    def __init__(
        self,
        tenant: str,
        arguments: Sequence[str | int],
        answered: Callable[[Standing | None], None],
        until_ms: int = 0,
    ) -> None:
        self.tenant, self.arguments, self.answered, self.until_ms = tenant, arguments, answered, until_ms
        # How often the Redis answered it with an error.
        self.refusals = 0


class Ledger:
    """Sends operations while the link is alive.

    When the Redis is found again, `rejoin` is asked about each of `tenants` what it must be told first, if anything:
    before any other operation of that tenant, and of those that have none, a few at a time. A tenant whose state there
    cannot be read is apart from the others until it can (`counts`).
    """

    def __init__(
        self,
        link: RedisLink,
        now_ms: Callable[[], int],
        tenants: Callable[[], Iterable[str]],
        rejoin: Callable[[str], Operation | None],
    ) -> None:
        self.link = link
        self.dropped = 0
        self._sent = 0
        self._now_ms = now_ms
        self._waiting: deque[Operation] = deque()
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._tenants, self._rejoin = tenants, rejoin
        # Those that were not asked about yet.
        self._rejoining: dict[str, None] = {}
        self._unreadable = Unreadable(self._look)
        self._sha = link.uses(SCRIPT, self._on_up, self._on_down)
        self._task = asyncio.create_task(self._run(), name="quota-ledger")

    @property
    def waiting(self) -> int:
        """What was asked and is not answered."""
        return len(self._rejoining) + len(self._waiting) + self._sent + len(self._unreadable)

    @property
    def unreadable(self) -> tuple[str, ...]:
        """The tenants that are apart."""
        return self._unreadable.names

    def counts(self, tenant: str) -> bool:
        """Whether the tenant is counted together: the Redis is there, and its state can be read."""
        return self.link.alive and tenant not in self._unreadable

    def lost_at_ms(self, tenant: str) -> int:
        """When it was last no more counted together, by the clock of the Redis."""
        return self._unreadable.lost_at_ms(tenant) if tenant in self._unreadable else self.link.lost_at_ms

    def send(self, operation: Operation) -> None:
        if operation.tenant in self._unreadable:
            self._unreadable.keep(operation)
            if len(self._unreadable) > _WAITING_MAX:
                self._drop(self._unreadable.oldest())
            return
        self._waiting.append(operation)
        if len(self._waiting) > _WAITING_MAX:
            self._drop(self._waiting.popleft())
        self._wake.set()

    async def ask(self, tenant: str, arguments: Sequence[str | int]) -> Standing | None:
        """The answer, or None where the Redis gave none in time: whether it counted is then not known."""
        answer: asyncio.Future[Standing | None] = asyncio.get_running_loop().create_future()

        def answered(standing: Standing | None) -> None:
            if not answer.done():
                answer.set_result(standing)

        self.send(Operation(tenant, arguments, answered))
        return await answer

    async def close(self, seconds: float) -> None:
        """Send what waits, for at most `seconds`; the rest lapses by its leases."""
        with contextlib.suppress(TimeoutError):
            if self.link.alive:
                self._wake.set()
                await asyncio.wait_for(self._idle.wait(), seconds)
        self._unreadable.close()
        await end(self._task)

    def _on_up(self) -> None:
        self._rejoining = dict.fromkeys((*self._tenants(), *self._unreadable.names))
        self._wake.set()

    def _on_down(self) -> None:
        """Only what must not be lost goes on waiting."""
        kept: deque[Operation] = deque()
        for operation in self._waiting:
            if operation.until_ms:
                kept.append(operation)
            else:
                operation.answered(None)
        self._waiting = kept
        self._rejoining = {}

    async def _run(self) -> None:
        while True:
            if not self._has_more:
                self._idle.set()
            await self._wake.wait()
            self._wake.clear()
            self._idle.clear()
            while self._has_more and self.link.alive:
                batch = self._next_batch()
                self._sent = len(batch)
                if batch:
                    await self._exchange(batch)
                else:
                    await asyncio.sleep(0)
                self._sent = 0

    @property
    def _has_more(self) -> bool:
        return bool(self._waiting or self._rejoining)

    def _next_batch(self) -> list[Operation]:
        batch: list[Operation] = []
        while self._waiting and len(batch) < _BATCH:
            operation = self._waiting.popleft()
            if operation.tenant in self._rejoining:
                batch += self._rejoin_of(operation.tenant)
            batch.append(operation)
        for tenant in list(itertools.islice(self._rejoining, _TENANTS_A_BATCH)):
            batch += self._rejoin_of(tenant)
        return batch

    def _rejoin_of(self, tenant: str) -> list[Operation]:
        del self._rejoining[tenant]
        if tenant in self._unreadable:
            # What it is told counts once it can be read.
            return [Operation(tenant, _LOOK, lambda standing: None)]
        operation = self._rejoin(tenant)
        return [] if operation is None else [operation]

    def _look(self, tenant: str) -> None:
        if tenant not in self._tenants():
            for operation in self._unreadable.forget(tenant):
                self._drop(operation)
        elif self.link.alive:
            self._rejoining[tenant] = None
            self._wake.set()

    def _part(self, operation: Operation, why: str) -> None:
        self._unreadable.part(operation.tenant, why, self.link.clock_ms())
        if operation.arguments is _LOOK:
            return
        # It may be what makes it so: a lease that was written over.
        operation.refusals += 1
        if operation.refusals < _REFUSALS_MAX:
            self._unreadable.keep(operation)
        else:
            self._drop(operation)

    def _back(self, tenant: str) -> None:
        rejoin, now_ms = self._rejoin(tenant), self._now_ms()
        if rejoin is not None:
            self._waiting.append(rejoin)
        log.info("the quota of tenant %s is counted together again", tenant)
        for operation in self._unreadable.forget(tenant):
            if operation.until_ms > now_ms:
                self._waiting.append(operation)
            else:
                self._drop(operation)

    async def _exchange(self, batch: list[Operation]) -> None:
        try:
            answers = await self._call(batch)
        except asyncio.CancelledError as error:
            self._put_back(batch, error)
            raise
        except Exception as error:
            if not isinstance(error, RedisError | OSError | TimeoutError):
                log.exception("the quota ledger cannot ask")
            self._put_back(batch, error)
            return
        failed: list[Operation] = []
        failure: BaseException = RedisError()
        for operation, answer in zip(batch, answers, strict=True):
            try:
                if isinstance(answer, bytes):
                    if answer.startswith(_UNREADABLE):
                        self._part(operation, answer.removeprefix(_UNREADABLE).decode(errors="replace"))
                        continue
                    self._answer(operation, read_standing(answer))
                    continue
                failure = answer if isinstance(answer, BaseException) else failure
            except (TypeError, ValueError) as error:
                # Not what the script answers.
                failure = error
            operation.refusals += 1
            if operation.refusals < _REFUSALS_MAX:
                failed.append(operation)
            else:
                self._drop(operation)
        if failed:
            self._put_back(failed, failure)

    async def _call(self, batch: list[Operation]) -> list[object]:
        client = self.link.client
        if client is None:
            raise RuntimeError("a ledger needs a Redis")
        pipeline = client.pipeline(transaction=False)
        for operation in batch:
            key = f"headworks:quota:{{{operation.tenant}}}"
            pipeline.evalsha(self._sha, 2, key, f"{key}:leases", " ".join(map(str, operation.arguments)))
        call = asyncio.ensure_future(pipeline.execute(raise_on_error=False))
        try:
            done, _ = await asyncio.wait((call,), timeout=self.link.answer_seconds)
            if not done:
                # Where it was this process that stood still, the answer lies there by now.
                done, _ = await asyncio.wait((call,), timeout=self.link.answer_seconds / 10)
        finally:
            # A connection within an answer is of no more use; this closes it.
            call.cancel()
        if not done:
            await asyncio.gather(call, return_exceptions=True)
            raise TimeoutError
        return cast("list[object]", call.result())

    def _answer(self, operation: Operation, standing: Standing | None) -> None:
        if standing is not None:
            self.link.heard(standing.at_ms)
        if operation.arguments is _LOOK and operation.tenant in self._unreadable:
            self._back(operation.tenant)
        operation.answered(standing)

    def _put_back(self, batch: list[Operation], error: BaseException) -> None:
        """The link is told first: what waited goes into the local share before what was sent."""
        now_ms = self._now_ms()
        kept = []
        for operation in batch:
            if operation.until_ms > now_ms:
                kept.append(operation)
            elif operation.until_ms:
                self._drop(operation)
        self.link.failed(error)
        self._waiting.extendleft(reversed(kept))
        for operation in batch:
            if not operation.until_ms:
                operation.answered(None)

    def _drop(self, operation: Operation) -> None:
        self.dropped += 1
        operation.answered(None)


def read_standing(answer: bytes) -> Standing | None:
    """Raises: TypeError, ValueError."""
    if not answer:
        return None
    numbers = [int(number) for number in answer.split()]
    tokens, requests = numbers[3:7], numbers[7:11]
    return Standing(
        numbers[0] == 1,
        numbers[1],
        numbers[2],
        BucketState(*tokens) if tokens[0] != NONE else None,
        BucketState(*requests) if requests[0] != NONE else None,
        *numbers[11:],
    )
