"""What a GPU can do at most, from its data sheet: prefill is bound by its arithmetic, decode by its memory.

A ceiling and a first guess; measured rates win. Source: S. Williams et al., "Roofline" (2009); seed 1, section 4.
"""

from __future__ import annotations

from typing import NamedTuple

from policy.planning.gpus import Gpu
from policy.planning.shapes import ModelShape, Quantisation, stored_bytes

# Parts of the peak that good engines reach, as their makers' and users' measurements have it.
COMPUTE_PERMILLE, BANDWIDTH_PERMILLE = 500, 600
_OPERATIONS_PER_PARAMETER = 2


class Rates(NamedTuple):
    """Tokens a second that one GPU does when it does nothing else."""

    prefill_tokens_per_second: float
    decode_tokens_per_second: float

    def requests_per_second(self, prompt_tokens: float, output_tokens: float) -> float:
        """What one GPU finishes a second, reading and writing in turn."""
        return 1 / (prompt_tokens / self.prefill_tokens_per_second + output_tokens / self.decode_tokens_per_second)


def estimated(
    shape: ModelShape, weights: Quantisation, gpu: Gpu, *, gpus: int, sequences: int, bytes_per_sequence: float
) -> Rates | None:
    """Rates of a GPU of an engine of `gpus`, with `sequences` decoding at once; None where its speed is not known.

    `bytes_per_sequence`: of KV cache on one GPU, all read for each token. Of many experts a batch asks for nearly all.
    """
    if gpu.bandwidth_bytes_per_second is None or gpu.bf16_flops is None or sequences < 1:
        return None
    flops = gpu.bf16_flops * (2 if weights == "fp8" and gpu.has_fp8 else 1) * COMPUTE_PERMILLE / 1000
    by_arithmetic = flops / (_OPERATIONS_PER_PARAMETER * shape.active_parameters)
    bandwidth = gpu.bandwidth_bytes_per_second * BANDWIDTH_PERMILLE / 1000
    step_bytes = _bytes_of_a_step(shape, weights, sequences) / gpus + sequences * bytes_per_sequence
    by_memory = sequences * bandwidth / step_bytes / gpus
    return Rates(by_arithmetic, min(by_arithmetic, by_memory))


def _bytes_of_a_step(shape: ModelShape, weights: Quantisation, sequences: int) -> float:
    """Weights that a step of `sequences` tokens reads, over all GPUs."""
    experts = shape.expert_parameters
    dense = shape.parameters - experts - (shape.embedding if shape.head else 0) - shape.beside
    of_dense: Quantisation = "bf16" if weights == "mxfp4" else weights
    asked = 1.0 - (1 - shape.experts_per_token / shape.experts) ** sequences if experts else 0.0
    return stored_bytes(dense, of_dense) + stored_bytes(experts, weights) * asked
