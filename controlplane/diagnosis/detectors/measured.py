"""Measured lengths of a pool's requests, as counts that the functions of policy/ derive numbers from."""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.diagnosis.detector import Fleet, PoolFacts
from policy.planning import lengths as of_lengths
from wire.canonical import Document

# A share of so many is known to ±10 percentage points, 19 times of 20: 1.96 × √(¼ ÷ 100).
REQUESTS_MIN = 100


def distribution(quantiles: Mapping[int, int]) -> dict[int, int] | None:
    """Counts by bucket of a curve through per mille → tokens; None where that says nothing."""
    try:
        return of_lengths.from_percentiles(quantiles)
    except ValueError:
        return None


def prompts_of(facts: PoolFacts) -> dict[int, int] | None:
    """None where too few were counted to derive anything from."""
    if facts.lengths is None or facts.lengths.counted < REQUESTS_MIN:
        return None
    return distribution(facts.lengths.prompt_tokens)


def outputs_of(facts: PoolFacts) -> dict[int, int] | None:
    if facts.lengths is None or facts.lengths.counted < REQUESTS_MIN:
        return None
    return distribution(facts.lengths.output_tokens)


def contexts_of(facts: PoolFacts, fleet: Fleet) -> dict[int, int] | None:
    """Whole contexts, prompt and output, as long as the model's engines let them grow."""
    prompts, outputs = prompts_of(facts), outputs_of(facts)
    if prompts is None or outputs is None:
        return None
    contexts = of_lengths.contexts(prompts, outputs)
    model = model_of(facts, fleet)
    return contexts if model is None else of_lengths.at_most(contexts, int(model["max_context_tokens"]))


def model_of(facts: PoolFacts, fleet: Fleet) -> Document | None:
    return fleet.models.get(facts.row["model"])


def engines_of(facts: PoolFacts, fleet: Fleet) -> dict[str, Document]:
    """The pool's engines that may take work."""
    return {name: fleet.engines[name] for name in facts.engines if name in fleet.engines}
