"""Schemas that constrain answers: held to the tenant's limits, counted, and remembered for engines that start again.

Each gateway counts what it sees itself. Source: seed 1, section 17.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from gateway import settings
from gateway.decisions import pool_of
from gateway.refusals import Refused
from gateway.schema_warm_up import WarmUp, WarmUpRequest
from policy.known_schemas import MostUsed, Seen, UsedLately
from policy.schemas import IGNORED_BY_VLLM, Constraint, Measured, check_shape, check_size, constraints_of, measured

if TYPE_CHECKING:
    from gateway.exchange import Exchange
    from gateway.pipeline import Outcome
    from gateway.state import Gateway
    from gateway.view import View

# Of a pool, and of all pools: a digest and a few numbers each.
_REMEMBERED = 4_096
# A larger one is not asked for when an engine starts: each pool keeps many.
_MAX_KEPT_BYTES = 128 * 1024


class UsedSchema(NamedTuple):
    """A constraint of a request."""

    digest: bytes
    constraint: Constraint


class _OfPool:
    def __init__(self, known: int) -> None:
        self.seen = Seen(_REMEMBERED)
        self.most_used: MostUsed[WarmUpRequest] = MostUsed(known)


class Schemas:
    """What the gateway knows of schemas. `warm_up` makes them known to engines that have started."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._refuses_ignored = settings.REFUSE_IGNORED_FIELDS.read()
        self._known = settings.KNOWN_SCHEMAS.read()
        self._tenants: dict[str, UsedLately] = {}
        self._pools: dict[str, _OfPool] = {}
        self._measured: OrderedDict[bytes, Measured] = OrderedDict()
        self.warm_up = WarmUp(gateway, self._known_of)

    def configure(self, view: View) -> None:
        """Forget tenants and pools that are no longer there."""
        self._tenants = {name: used for name, used in self._tenants.items() if name in view.snapshot.tenants}
        self._pools = {name: of_pool for name, of_pool in self._pools.items() if name in view.snapshot.pools}
        self.warm_up.configure(view)

    def check(self, x: Exchange, found: list[Constraint]) -> None:
        """Raises: Refused (`ignored_field`, `too_many_schemas`), NotAdmitted (`schema_too_large`, `…_deep`, …)."""
        limits = x.tenant.schema_limits
        for constraint in found:
            self._check_heeded(x, constraint)
            check_size(constraint, limits)
            told = self._measure(constraint)
            x.note(
                schema_bytes=told.size_bytes, schema_depth=told.shape.depth, schema_alternatives=told.shape.alternatives
            )
            check_shape(constraint, told.shape, limits)
            used = self._tenants.setdefault(x.tenant_name, UsedLately())
            wait_ms = used.use(told.digest, limits.max_distinct, self._gateway.now_ms())
            x.note(distinct_schemas=len(used))
            if wait_ms:
                raise Refused(
                    "too_many_schemas",
                    f"the tenant used {len(used)} different schemas within an hour, as many as it may, and this is "
                    "another; send the same schema for the same form of answer",
                    param=constraint.field,
                    retry_after_seconds=wait_ms / 1000,
                )
            x.schemas.append(UsedSchema(told.digest, constraint))

    def ended(self, x: Exchange, outcome: Outcome, reason: str) -> None:
        """Count those that an engine had to compile, and keep those that it did compile."""
        if not x.schemas or not x.reached_engine:
            return
        pool = pool_of(x)
        self._gateway.metrics.constrained(pool, x.tenant_name)
        of_pool = self._pools.setdefault(pool, _OfPool(self._known))
        for digest, constraint in x.schemas:
            if not of_pool.seen.see(digest):
                self._gateway.metrics.unseen_schema(pool, x.tenant_name)
            if outcome == "ok" and len(constraint.json) <= _MAX_KEPT_BYTES:
                of_pool.most_used.use(digest, WarmUpRequest(x.endpoint, constraint.as_chat))

    def _measure(self, constraint: Constraint) -> Measured:
        key = hashlib.blake2b(constraint.json, digest_size=16, key=constraint.field.encode()[:64]).digest()
        told = self._measured.get(key)
        if told is None:
            told = self._measured[key] = measured(constraint)
            if len(self._measured) > _REMEMBERED:
                self._measured.popitem(last=False)
        return told

    def _check_heeded(self, x: Exchange, constraint: Constraint) -> None:
        """Rather no answer than one that nobody has constrained."""
        if constraint.field not in IGNORED_BY_VLLM or not self._refuses_ignored:
            return
        view = x.view
        engines = (view.snapshot.engines[name] for pool in x.route.pools for name in view.engines_of[pool])
        if any(engine.kind == "vllm" for engine in engines):
            raise Refused(
                "ignored_field",
                f"vLLM takes no notice of `{constraint.field}`: the answer would be unconstrained; send "
                "`response_format` or `structured_outputs` instead",
                param=constraint.field,
            )

    def _known_of(self, pool: str) -> list[WarmUpRequest]:
        of_pool = self._pools.get(pool)
        return [] if of_pool is None else of_pool.most_used.values()


async def check_schema(x: Exchange) -> None:
    """What constrains the answer: its size, depth and breadth, and how many different ones the tenant uses."""
    if found := constraints_of(x.ask):
        x.gateway.schemas.check(x, found)


def remember_schemas(x: Exchange, outcome: Outcome, reason: str) -> None:
    """The ending that belongs to it."""
    x.gateway.schemas.ended(x, outcome, reason)
