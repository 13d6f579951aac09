"""Whether a lever that was applied helped. Pure: what was seen and the time in, the next state and why out.

Once all run the change, its detector must see the place clear for a whole window, and begin to within some windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.diagnosis.models import ProposalState


@dataclass(frozen=True)
class Watched:
    """A proposal that was applied, as its row says."""

    state: str
    applied_at: datetime
    verifying_since: datetime | None
    clear_since: datetime | None


@dataclass(frozen=True)
class Seen:
    """`found`: by the last round at the same place; None: its detector was blind.

    `pending`, `refusing`: targets that do not run the change yet, or said no to it. `open_acts`, `failed_acts`: those
    of its commands that go on, or came to nothing, in words. `unstarted`: engines that take it at their next start.
    """

    found: bool | None
    pending: Sequence[str] = ()
    refusing: Sequence[str] = ()
    open_acts: Sequence[str] = ()
    failed_acts: Sequence[str] = ()
    unstarted: Sequence[str] = ()


@dataclass(frozen=True)
class Verdict:
    """`helped`: None while it is not known yet."""

    state: ProposalState
    said: str
    verifying_since: datetime | None = None
    clear_since: datetime | None = None

    @property
    def helped(self) -> bool | None:
        return {ProposalState.HELD: True, ProposalState.OFFERED_BACK: False}.get(self.state)


def verdict(watched: Watched, seen: Seen, now: datetime, window: timedelta, windows: int) -> Verdict:
    """`windows`: so many may pass before all targets run it, and again before the place must be clear."""
    if watched.state == ProposalState.APPLIED:
        return _on_the_way(watched, seen, now, windows * window)
    since = watched.verifying_since or now
    if seen.found is None:
        # Nobody saw it clear: a whole window of seeing begins anew.
        return Verdict(ProposalState.VERIFYING, "its detector is blind", since)
    if seen.found:
        if now - since >= windows * window:
            return _not_held(f"the finding still stands {_seconds(now - since)} after all ran the change")
        return Verdict(ProposalState.VERIFYING, "the finding still stands", since)
    clear_since = watched.clear_since or now
    if now - clear_since >= window:
        return Verdict(ProposalState.HELD, f"clear for {_seconds(now - clear_since)}", since, clear_since)
    return Verdict(ProposalState.VERIFYING, "clear, but not yet for a whole window", since, clear_since)


def _on_the_way(watched: Watched, seen: Seen, now: datetime, limit: timedelta) -> Verdict:
    if seen.refusing:
        return _not_held(f"refused by {', '.join(seen.refusing)}")
    if seen.failed_acts:
        return _not_held("; ".join(seen.failed_acts))
    # An act ends by itself, if only because it expires.
    if seen.open_acts:
        return Verdict(ProposalState.APPLIED, f"waits for {', '.join(seen.open_acts)}")
    # When is for people or a rollout to say.
    if not seen.pending and seen.unstarted:
        return Verdict(ProposalState.APPLIED, f"waits for {', '.join(seen.unstarted)}")
    if not seen.pending:
        return Verdict(ProposalState.VERIFYING, "all run it", now)
    if now - watched.applied_at >= limit:
        return _not_held(f"not run by {', '.join(seen.pending)} after {_seconds(now - watched.applied_at)}")
    return Verdict(ProposalState.APPLIED, f"not yet run by {', '.join(seen.pending)}")


def _not_held(said: str) -> Verdict:
    return Verdict(ProposalState.OFFERED_BACK, said)


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.0f} s"
