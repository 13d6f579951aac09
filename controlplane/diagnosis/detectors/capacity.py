"""How many sequences a pool's engines carry at once, from their measured KV cache and the lengths of their requests.

Source: seed 1, "KV budget" and sections 1 and 2; policy/capacity.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from controlplane.diagnosis.detector import Fleet, PoolFacts
from controlplane.diagnosis.detectors.measured import contexts_of, engines_of
from policy.capacity import derive_max_num_seqs, longest_of_share
from policy.kv import admissible_tokens

# Of the KV cache that is to be filled at most: the rest is for what grows beyond its estimate.
FILLED_PERMILLE = 900
# A full batch fits with this probability.
SHARE_PERMILLE = 950


class Carried(NamedTuple):
    """`sequences`: by engine. `context_tokens`: that 95 % of requests do not exceed. `capacity_tokens`: of all."""

    sequences: dict[str, int]
    context_tokens: int
    capacity_tokens: int

    @property
    def together(self) -> int:
        return sum(self.sequences.values())

    @property
    def of_each(self) -> int:
        """What every one of them carries."""
        return min(self.sequences.values())


def carried(facts: PoolFacts, fleet: Fleet) -> Carried | None:
    """None where an engine's capacity or the lengths of requests are not known."""
    contexts = contexts_of(facts, fleet)
    capacities = {name: row["kv_capacity_tokens"] for name, row in engines_of(facts, fleet).items()}
    if contexts is None or not capacities or not all(capacities.values()):
        return None
    filled = {name: admissible_tokens(tokens, FILLED_PERMILLE) for name, tokens in capacities.items()}
    sequences = {
        name: max(1, derive_max_num_seqs(tokens, contexts, lambda length: max(1, length), SHARE_PERMILLE).for_share)
        for name, tokens in filled.items()
    }
    return Carried(sequences, longest_of_share(contexts, SHARE_PERMILLE) or 1, sum(capacities.values()))


def fitting_cap(now: int | None, running: float, use_ratio: float, budget: Carried | None) -> int | None:
    """The requests that a pool may have at its engines together, so that its KV cache is filled to FILLED_PERMILLE.

    `now`: what bounds them already. `running`: sequences that fill it to `use_ratio`, or more, now: as many less as it
    is too full. The measured lengths may say fewer. None where there is no smaller number.
    """
    found = [] if budget is None else [budget.together]
    if running >= 1 and use_ratio > 0:
        found.append(math.floor(running * min(1.0, FILLED_PERMILLE / 1000 / use_ratio)))
    if now is not None:
        found.append(now - 1)
    least = max(1, min(found, default=0))
    return None if not found or (now is not None and least >= now) else least
