"""What interactive requests meet beside lines of batches: seen when each has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.decisions import pool_of
from gateway.exchange import Exchange

if TYPE_CHECKING:
    from gateway.pipeline import Outcome


def watch_beside_lines(x: Exchange, outcome: Outcome, reason: str) -> None:
    """An ending of the pipeline."""
    batches = x.gateway.batches
    if batches is not None and x.line is None and outcome == "ok" and x.priority_class != batches.priority_class:
        batches.rooms.saw(x, pool_of(x))
