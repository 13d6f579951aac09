"""Whether a policy may apply a lever now. Pure: a named reason, in words, is the answer where it may not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of a policy. `pools`: None is any."""

    max_an_hour: int
    min_confidence_permille: int
    pools: frozenset[str] | None


@dataclass(frozen=True)
class Asked:
    """About the finding, and about what was done lately.

    `applied_in_the_hour`: by this policy. `watched`: levers of the same finding that wait for their verdict. `tried`:
    this lever was applied to this finding before. `changed_by`: who changed what it would write within the time for
    which the policy stands back, in words.
    """

    confidence_permille: int
    pools: Collection[str]
    applied_in_the_hour: int
    watched: Collection[str] = ()
    tried: bool = False
    changed_by: str = ""


def refusal(limits: Limits, asked: Asked) -> str:
    """Why not; empty where it may. What a person decides goes before all limits."""
    if asked.changed_by:
        return f"stands back: {asked.changed_by}"
    if asked.tried:
        return "it was applied to this finding before and did not end it"
    if asked.watched:
        return f"waits: lever {', '.join(sorted(asked.watched))} of this finding is being verified"
    if asked.confidence_permille < limits.min_confidence_permille:
        return f"the confidence is {asked.confidence_permille} ‰, and {limits.min_confidence_permille} ‰ is asked for"
    if limits.pools is not None and (others := sorted(set(asked.pools) - limits.pools)):
        return f"it is not for pool {', '.join(others)}"
    if limits.pools is not None and not asked.pools:
        return "the finding names no pool, and it is for some pools only"
    if asked.applied_in_the_hour >= limits.max_an_hour:
        return f"it has applied {asked.applied_in_the_hour} within an hour, which is its most"
    return ""
