"""Circuit breaker of one engine, or of a pool: closed → open → half_open → closed or open.

Time is integer milliseconds: monotonic for the automatic breaker, Unix time for overrides (they carry an expiry
that a person set). Gateways tell each other what their breakers learned: `hold_open` and `close_with_others` take that.
Source: seed 1, section 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from wire.snapshot import BreakerThresholds, Override

State = Literal["closed", "open", "half_open"]
# `timeout`: the first token came too late, whatever came of it then.
Outcome = Literal["success", "failure", "timeout", "ignored"]
_WINDOW_SLOTS = 10


class Permit(NamedTuple):
    """Leave to send one request. Its outcome counts only in the state it was given in (`generation`).

    `probe_round`: which round of probes it is one of; 0: it is none.
    """

    generation: int
    probe_round: int = 0


class Breaker:
    """Opens when the share of errors, or that of timeouts, passes its threshold over a rolling window.

    After a cooldown it lets single probes try. Those that say nothing for another cooldown are given up for lost, so
    that requests that hang do not keep all others out.
    """

    def __init__(self, thresholds: BreakerThresholds) -> None:
        self._thresholds = thresholds
        self._state: State = "closed"
        self._generation = 0
        self._open_until_ms = 0
        self._probes_taken = 0
        self._probes_passed = 0
        self._probe_round = 1
        self._last_probe_ms = 0
        self._slots: dict[int, list[int]] = {}

    def configure(self, thresholds: BreakerThresholds) -> None:
        """Take new thresholds. The state stays; counts of a window of another length are dropped."""
        if thresholds.window_ms != self._thresholds.window_ms:
            self._slots = {}
        self._thresholds = thresholds
        if self._state == "half_open":
            self._close_if_proven()

    def state(self, now_ms: int) -> State:
        """The state now; a cooldown that is over has become half_open."""
        if self._state == "open" and now_ms >= self._open_until_ms:
            self._enter("half_open")
        return self._state

    def may_try(self, now_ms: int) -> bool:
        """Would `permit` give leave now?"""
        state = self.state(now_ms)
        if state != "half_open":
            return state == "closed"
        return self._probes_taken < self._thresholds.half_open_probes or self._probes_are_lost(now_ms)

    def permit(self, now_ms: int) -> Permit | None:
        """Leave for one request, or None. While half_open, at most `half_open_probes` are given in a cooldown."""
        if not self.may_try(now_ms):
            return None
        if self._state == "closed":
            return Permit(self._generation)
        if self._probes_are_lost(now_ms):
            self._probes_taken = 0
            self._probe_round += 1
        self._probes_taken += 1
        self._last_probe_ms = now_ms
        return Permit(self._generation, self._probe_round)

    def record(self, permit: Permit, outcome: Outcome, now_ms: int) -> None:
        """Say how a permitted request went. `ignored` (the client left) says nothing of the engine."""
        if permit.generation != self._generation:
            return
        if self._state == "half_open":
            self._record_probe(permit, outcome, now_ms)
        elif outcome != "ignored":
            self._record_in_window(outcome, now_ms)

    def retry_in_ms(self, now_ms: int) -> int:
        """Time until an open breaker lets probes through; 0 in the other states."""
        return max(0, self._open_until_ms - now_ms) if self.state(now_ms) == "open" else 0

    def hold_open(self, until_ms: int, now_ms: int) -> None:
        """Another gateway's breaker opened until then: so does this one, for no longer than its own cooldown.

        It never shortens what this one holds already.
        """
        until_ms = min(until_ms, now_ms + self._thresholds.cooldown_ms)
        state = self.state(now_ms)
        if until_ms <= now_ms or (state == "open" and until_ms <= self._open_until_ms):
            return
        if state != "open":
            self._enter("open")
        self._open_until_ms = until_ms

    def close_with_others(self, now_ms: int) -> None:
        """Another gateway's probes went well: no need for own ones. One that is open waits for its cooldown."""
        if self.state(now_ms) == "half_open":
            self._enter("closed")

    def _record_probe(self, permit: Permit, outcome: Outcome, now_ms: int) -> None:
        if outcome in ("failure", "timeout"):
            self._open(now_ms)
        elif outcome == "ignored":
            # One that was given up for lost has been given again.
            self._probes_taken -= permit.probe_round == self._probe_round
        else:
            self._probes_passed += 1
            self._close_if_proven()

    def _probes_are_lost(self, now_ms: int) -> bool:
        return self._probes_taken > 0 and now_ms - self._last_probe_ms >= self._thresholds.cooldown_ms

    def _close_if_proven(self) -> None:
        if self._probes_passed >= self._thresholds.half_open_probes:
            self._enter("closed")

    def _record_in_window(self, outcome: Outcome, now_ms: int) -> None:
        width = max(1, self._thresholds.window_ms // _WINDOW_SLOTS)
        slot = now_ms // width
        if slot not in self._slots:
            self._slots = {old: counts for old, counts in self._slots.items() if old > slot - _WINDOW_SLOTS}
            self._slots[slot] = [0, 0, 0]
        counts = self._slots[slot]
        counts[0] += 1
        counts[1] += outcome == "failure"
        counts[2] += outcome == "timeout"
        if outcome != "success" and self._is_over():
            self._open(now_ms)

    def _is_over(self) -> bool:
        requests, failures, timeouts = map(sum, zip(*self._slots.values(), strict=True))
        limits = self._thresholds
        return requests >= limits.minimum_requests and (
            failures * 1000 > limits.error_permille * requests or timeouts * 1000 > limits.timeout_permille * requests
        )

    def _open(self, now_ms: int) -> None:
        self._enter("open")
        self._open_until_ms = now_ms + self._thresholds.cooldown_ms

    def _enter(self, state: State) -> None:
        self._state = state
        self._generation += 1
        self._probes_taken = self._probes_passed = 0
        self._slots = {}


def held_override(overrides: Iterable[Override], now_ms: int) -> Override | None:
    """The override that holds at `now_ms` (Unix time): the strictest unexpired one, open before closed.

    Among equally strict ones the last to expire is named. None leaves the automatic breaker to decide.
    """
    live = [override for override in overrides if override.expires_at_ms > now_ms]
    return max(live, key=lambda override: (override.state == "open", override.expires_at_ms), default=None)


class Turn(NamedTuple):
    """An override that holds from `from_ms` (Unix time) until it expires."""

    name: str
    override: Override
    from_ms: int


def turns(overrides: Mapping[str, Override], now_ms: int) -> list[Turn]:
    """The override that holds now and, in order, those that hold after it as far as nobody acts; then it is automatic.

    Each begins in the millisecond in which the one before expires: at every gateway at once, by its own clock.
    """
    found: list[Turn] = []
    at_ms = now_ms
    while (held := held_override(overrides.values(), at_ms)) is not None:
        name = next(name for name, override in overrides.items() if override is held)
        found.append(Turn(name, held, at_ms))
        at_ms = held.expires_at_ms
    return found
