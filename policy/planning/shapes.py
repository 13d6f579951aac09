"""What a model is made of, as far as planning needs it: its parameters by how engines keep them, and its KV cache."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from policy.kv import ONE_GPU, Layers, Sharding

# int4: AWQ and GPTQ, groups of 128. mxfp4: experts alone, as gpt-oss is stored. bf16 stands for fp16 as well.
Quantisation = Literal["bf16", "fp8", "int4", "mxfp4"]
QUANTISATIONS: tuple[Quantisation, ...] = get_args(Quantisation)
# Bits that 128 weights take: int4 has a scale of 16 bits and a zero of 4 for a group of 128, mxfp4 8 bits for 32.
# Source: AutoAWQ's and GPTQ's storage; Open Compute Project, "OCP Microscaling Formats (MX)" 1.0.
_BITS_OF_128: dict[Quantisation, int] = {"bf16": 2048, "fp8": 1024, "int4": 512 + 16 + 4, "mxfp4": 512 + 4 * 8}
_PLAIN_BYTES = 2


class DecoderLayer(NamedTuple):
    """Parameters of one layer. What is `plain` (norms, biases, routers) is never quantised, and each rank holds it all.

    `split`: matrices that tensor parallel ranks share out. `key_value`: of keys and values, copied where there are
    fewer heads than ranks. `copied`: matrices that each rank holds whole. `experts`: all that a router chooses from.
    """

    split: int
    key_value: int = 0
    copied: int = 0
    experts: int = 0
    plain: int = 0

    @property
    def parameters(self) -> int:
        return sum(self)


class ModelShape(NamedTuple):
    """A model as its config.json describes it.

    `head`: the output matrix, 0 where it is the embedding's. `beside`: towers for images and the last norm, which are
    not quantised. `divided`: what tensor parallelism must divide without a rest. `stored`: how its weights lie on disk;
    None where that is not known. `max_context_tokens`: the longest that it was trained for.
    """

    model_type: str
    kv: Layers
    layers: tuple[DecoderLayer, ...]
    embedding: int
    head: int
    beside: int
    hidden_size: int
    vocab_size: int
    kv_heads: int
    divided: tuple[int, ...]
    experts: int
    experts_per_token: int
    max_context_tokens: int
    stored: Quantisation | None

    @property
    def parameters(self) -> int:
        return self.embedding + self.head + self.beside + sum(layer.parameters for layer in self.layers)

    @property
    def expert_parameters(self) -> int:
        return sum(layer.experts for layer in self.layers)

    @property
    def active_parameters(self) -> int:
        """Those that one token is multiplied with: of the experts those that are chosen, of the embedding one row."""
        chosen = self.expert_parameters * self.experts_per_token // max(1, self.experts)
        head = self.head or self.embedding
        return head + chosen + sum(layer.parameters - layer.experts for layer in self.layers)

    def can_be_split(self, sharding: Sharding) -> bool:
        """Whether an engine takes this: whole heads for each rank, and a layer for each stage."""
        ranks = sharding.tensor_parallel
        if sharding.pipeline_parallel > len(self.layers) or any(number % ranks for number in self.divided):
            return False
        return not (self.kv_heads % ranks and ranks % self.kv_heads)


# Remedies ask for the same again and again.
@lru_cache(maxsize=512)
def weight_bytes(shape: ModelShape, quantisation: Quantisation, sharding: Sharding = ONE_GPU) -> int:
    """Bytes of weights on one GPU of the fullest pipeline stage."""
    stages = layers_of_stages(len(shape.layers), sharding.pipeline_parallel)
    ranks, begin, fullest = sharding.tensor_parallel, 0, 0
    for stage, count in enumerate(stages):
        layers = shape.layers[begin : begin + count]
        begin += count
        size = sum(_layer_bytes(layer, quantisation, ranks, shape.kv_heads) for layer in layers)
        if stage == 0:
            size += -(-shape.embedding // ranks) * _PLAIN_BYTES + shape.beside * _PLAIN_BYTES
        if stage == len(stages) - 1:
            # An output matrix that is the embedding's lies on the last stage once more.
            again = shape.head or (shape.embedding if stage else 0)
            size += -(-again // ranks) * _PLAIN_BYTES
        fullest = max(fullest, size)
    return fullest


def layers_of_stages(layers: int, stages: int) -> list[int]:
    """How many layers each pipeline stage has: what is left over goes to the middle ones, as in vLLM."""
    each, rest = divmod(layers, stages)
    counts = [each] * stages
    for back in range(2, rest + 2):
        counts[-back] += 1
    return counts


# The layers of a model are of few kinds.
@lru_cache(maxsize=4096)
def _layer_bytes(layer: DecoderLayer, quantisation: Quantisation, ranks: int, kv_heads: int) -> int:
    heads_here = max(1, kv_heads // ranks)
    shared = -(-layer.split // ranks) + layer.key_value * heads_here // kv_heads + layer.copied
    of_shared: Quantisation = "bf16" if quantisation == "mxfp4" else quantisation
    experts = -(-layer.experts // ranks)
    return stored_bytes(shared, of_shared) + stored_bytes(experts, quantisation) + layer.plain * _PLAIN_BYTES


def stored_bytes(weights: int, quantisation: Quantisation) -> int:
    """What so many weights of matrices take, with the scales of their groups."""
    return -(-weights * _BITS_OF_128[quantisation] // (128 * 8))
