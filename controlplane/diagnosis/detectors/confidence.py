"""How sure a judgement is, in per mille, from signals that say the same independently of each other."""

from __future__ import annotations

WHOLE_PERMILLE = 1000
# A judgement on samples is never certain.
_MOST_PERMILLE = 990


def combined(*signals_permille: int) -> int:
    """Of signals that each mean it with this confidence: wrong only where all of them mean something else."""
    doubt = 1.0
    for signal in signals_permille:
        doubt *= 1 - signal / WHOLE_PERMILLE
    return min(_MOST_PERMILLE, round(WHOLE_PERMILLE * (1 - doubt)))


def lowered(confidence_permille: int, to_permille: int) -> int:
    """Where another cause explains the same evidence as well."""
    return confidence_permille * to_permille // WHOLE_PERMILLE
