"""When a finding begins and ends: only what lasts for some rounds does either. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Standing(NamedTuple):
    """`found` and `missed`: rounds one after the other. `shown`: it was found in as many as its detector wants."""

    found: int
    missed: int
    shown: bool


def stepped(before: Standing | None, is_found: bool, lasts_rounds: int) -> Standing | None:
    """How a finding stands after one more round that saw; None: there is none, or none any more.

    A round in which its detector was blind is none: it neither finds nor misses.
    """
    if is_found:
        found = 1 if before is None else min(before.found + 1, lasts_rounds)
        return Standing(found, 0, (before is not None and before.shown) or found >= lasts_rounds)
    if before is None or not before.shown or before.missed + 1 >= lasts_rounds:
        return None
    return before._replace(missed=before.missed + 1)
