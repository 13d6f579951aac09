"""From a config.json to a ModelShape: one function for the attention of a family, one for what follows it.

Source: the modelling code of transformers for each `model_type`, by which published parameter counts come out to the
last parameter (tests/policy/planning/test_architectures.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from policy.kv import GroupedQueryAttention, MultiHeadLatentAttention, SlidingWindowAttention, StateSpace
from policy.planning.config_json import BadConfig, ConfigFields
from policy.planning.quantised import stored_as
from policy.planning.shapes import DecoderLayer, ModelShape, Quantisation
from wire.problems import Problem

# Each layer is counted by itself.
_LAYERS_MAX, _HEADS_MAX, _EXPERTS_MAX = 1000, 100_000, 100_000
# Of hidden sizes, head sizes and the like; of vocabularies and contexts.
_WIDTH_MAX, _TOKENS_MAX = 10_000_000, 1_000_000_000
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
_LAYER_TYPES = (FULL, SLIDING, LINEAR)


class _Family(NamedTuple):
    """`norms`: of the hidden size, a layer. `head_norms`: queries and keys have one each. `qkv_bias`: always there."""

    norms: int = 2
    head_norms: bool = False
    qkv_bias: bool = False
    own_head_dim: bool = False
    latent: bool = False
    defaults: Mapping[str, Any] = {}


# Files of Gemma 3 leave out what is as in transformers' Gemma3TextConfig.
_GEMMA_3 = {
    "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "max_position_embeddings": 131_072, "tie_word_embeddings": True, "sliding_window": 4096,
    "sliding_window_pattern": 6,
}  # fmt: skip
_FAMILIES: dict[str, _Family] = {
    "llama": _Family(),
    "mistral": _Family(),
    "mixtral": _Family(),
    "qwen2": _Family(qkv_bias=True),
    "qwen2_moe": _Family(qkv_bias=True),
    "qwen3": _Family(head_norms=True, own_head_dim=True),
    "qwen3_moe": _Family(head_norms=True, own_head_dim=True),
    "qwen3_next": _Family(head_norms=True, own_head_dim=True),
    "gemma3_text": _Family(norms=4, head_norms=True, own_head_dim=True, defaults=_GEMMA_3),
    "gpt_oss": _Family(own_head_dim=True),
    "deepseek_v2": _Family(latent=True),
    "deepseek_v3": _Family(latent=True),
    "kimi_k2": _Family(latent=True),
}
# What wraps a text model and a tower for images; a text part that does not name itself is of this kind.
_NESTED = {"gemma3": "gemma3_text", "mistral3": "mistral"}
MODEL_TYPES = sorted([*_FAMILIES, *_NESTED])
_GATED_MATRICES, _TOWER_MATRICES = 3, 2


def shape_of(document: Mapping[str, Any]) -> ModelShape:
    """Raises BadConfig naming every field that is missing or absurd."""
    outer = ConfigFields(document)
    model_type = outer.get("model_type")
    if model_type not in MODEL_TYPES:
        rule = "required" if model_type is None else "unknown"
        says = f"{str(model_type)[:100]!r} is not known; there are {', '.join(MODEL_TYPES)}"
        raise BadConfig([Problem("/model_type", rule, says)])
    if model_type in _FAMILIES:
        whole = ConfigFields(document, defaults=_FAMILIES[str(model_type)].defaults)
        return _text_model(whole, str(model_type), stored=stored_as(outer), beside=0)
    text = outer.get("text_config")
    if not isinstance(text, dict):
        raise BadConfig([Problem("/text_config", "required", "give the object that describes the text model")])
    inner_type = str(text.get("model_type", _NESTED[str(model_type)]))
    if inner_type not in _FAMILIES:
        says = f"{inner_type[:100]!r} is not known; there are {', '.join(sorted(_FAMILIES))}"
        raise BadConfig([Problem("/text_config/model_type", "unknown", says)])
    # What is not said of the text model alone may stand beside it.
    defaults = {**_FAMILIES[inner_type].defaults, "model_type": inner_type}
    if outer.get("tie_word_embeddings") is not None:
        defaults["tie_word_embeddings"] = outer.get("tie_word_embeddings")
    inner = ConfigFields(text, path="/text_config", defaults=defaults)
    return _text_model(inner, inner_type, stored=stored_as(outer), beside=_tower(outer, inner))


def _text_model(fields: ConfigFields, model_type: str, *, stored: Quantisation | None, beside: int) -> ModelShape:
    family = _FAMILIES[model_type]
    layers = fields.whole("num_hidden_layers", _LAYERS_MAX)
    hidden = fields.whole("hidden_size", _WIDTH_MAX)
    vocab = fields.whole("vocab_size", _TOKENS_MAX)
    context = fields.whole("max_position_embeddings", _TOKENS_MAX)
    tied = fields.flag("tie_word_embeddings")
    attention = _latent(fields, layers, hidden) if family.latent else _grouped(fields, family, layers, hidden)
    feed = _Feed.read(fields, model_type, layers, hidden)
    fields.check()
    norms = DecoderLayer(0, plain=family.norms * hidden)
    made = tuple(
        DecoderLayer(*map(sum, zip(attention.layers[index], feed.layer(index), norms, strict=True)))
        for index in range(layers)
    )
    return ModelShape(
        model_type=model_type,
        kv=attention.kv,
        layers=made,
        embedding=vocab * hidden,
        head=0 if tied else vocab * hidden,
        beside=beside + hidden,
        hidden_size=hidden,
        vocab_size=vocab,
        kv_heads=attention.kv_heads,
        divided=attention.divided,
        experts=feed.experts,
        experts_per_token=feed.chosen,
        max_context_tokens=context,
        stored=stored,
    )


class _Attention(NamedTuple):
    kv: tuple[Any, ...]
    layers: list[DecoderLayer]
    kv_heads: int
    divided: tuple[int, ...]


def _grouped(fields: ConfigFields, family: _Family, layers: int, hidden: int) -> _Attention:
    heads = fields.whole("num_attention_heads", _HEADS_MAX)
    kv_heads = fields.whole(
        "num_key_value_heads", _HEADS_MAX, help="as many as num_attention_heads where each has its own"
    )
    fields.divides("num_key_value_heads", kv_heads, "num_attention_heads", heads)
    if fields.get("head_dim") is None and not family.own_head_dim:
        fields.divides("num_attention_heads", heads, "hidden_size", hidden)
        head_dim = hidden // heads
    else:
        head_dim = fields.whole("head_dim", _WIDTH_MAX)
    types = _types(fields, layers)
    window = fields.whole("sliding_window", _TOKENS_MAX) if SLIDING in types else 0
    full = _full_layer(fields, family, hidden, heads, kv_heads, head_dim)
    counts = {kind: types.count(kind) for kind in _LAYER_TYPES}
    kv: list[Any] = []
    if counts[FULL]:
        kv.append(GroupedQueryAttention(counts[FULL], kv_heads, head_dim))
    if counts[SLIDING]:
        kv.append(SlidingWindowAttention(counts[SLIDING], kv_heads, head_dim, window))
    divided, linear = [heads], full
    if counts[LINEAR]:
        linear, state, key_heads = _delta_net(fields, hidden)
        kv.append(StateSpace(counts[LINEAR], state))
        divided.append(key_heads)
    made = [linear if kind == LINEAR else full for kind in types]
    return _Attention(tuple(kv), made, kv_heads, tuple(divided))


def _full_layer(
    fields: ConfigFields, family: _Family, hidden: int, heads: int, kv_heads: int, head_dim: int
) -> DecoderLayer:
    model_type = fields.get("model_type")
    queries, keys = heads * head_dim, 2 * kv_heads * head_dim
    # Qwen3-Next's queries come with a gate of their own size.
    asked = 2 * queries if model_type == "qwen3_next" else queries
    plain = 2 * head_dim if family.head_norms else 0
    if family.qkv_bias:
        plain += queries + keys
    elif fields.flag("attention_bias"):
        plain += queries + keys + hidden
    if model_type == "gpt_oss":
        # A learned sink a head.
        plain += heads
    return DecoderLayer((asked + queries) * hidden, key_value=keys * hidden, plain=plain)


def _delta_net(fields: ConfigFields, hidden: int) -> tuple[DecoderLayer, int, int]:
    """A layer of Qwen3-Next's gated delta net, the elements of its state, and its key heads."""
    value_heads = fields.whole("linear_num_value_heads", _HEADS_MAX)
    key_heads = fields.whole("linear_num_key_heads", _HEADS_MAX)
    key_dim = fields.whole("linear_key_head_dim", _WIDTH_MAX)
    value_dim = fields.whole("linear_value_head_dim", _WIDTH_MAX)
    kernel = fields.whole("linear_conv_kernel_dim", _WIDTH_MAX)
    fields.divides("linear_num_key_heads", key_heads, "linear_num_value_heads", value_heads)
    keys, values = key_heads * key_dim, value_heads * value_dim
    convolved = 2 * keys + values
    # Queries, keys, values and gates in; two numbers a value head; values out.
    split = hidden * (2 * keys + 2 * values) + hidden * 2 * value_heads + values * hidden
    plain = convolved * kernel + 2 * value_heads + value_dim
    state = value_heads * key_dim * value_dim + (kernel - 1) * convolved
    return DecoderLayer(split, plain=plain), state, key_heads


def _types(fields: ConfigFields, layers: int) -> list[str]:
    """The kind of each layer: as it is written, else as the family's own code has it."""
    if fields.get("layer_types") is not None:
        return fields.words("layer_types", _LAYER_TYPES, layers) or [FULL] * layers
    model_type, numbers = fields.get("model_type"), range(1, layers + 1)
    window = fields.get("sliding_window")
    if model_type == "gemma3_text" or fields.get("sliding_window_pattern") is not None:
        pattern = fields.whole("sliding_window_pattern", _LAYERS_MAX)
        return [SLIDING if number % pattern else FULL for number in numbers]
    if model_type == "gpt_oss":
        return [SLIDING if number % 2 else FULL for number in numbers]
    if model_type == "qwen3_next":
        interval = fields.whole("full_attention_interval", _LAYERS_MAX)
        return [LINEAR if number % interval else FULL for number in numbers]
    if model_type in ("mistral", "mixtral") and window is not None:
        return [SLIDING] * layers
    if fields.flag("use_sliding_window") and window is not None:
        first = fields.whole_or("max_window_layers", _LAYERS_MAX, layers, least=0)
        return [SLIDING if number > first else FULL for number in numbers]
    return [FULL] * layers


def _latent(fields: ConfigFields, layers: int, hidden: int) -> _Attention:
    heads = fields.whole("num_attention_heads", _HEADS_MAX)
    rank = fields.whole("kv_lora_rank", _WIDTH_MAX)
    rope = fields.whole("qk_rope_head_dim", _WIDTH_MAX)
    nope = fields.whole("qk_nope_head_dim", _WIDTH_MAX)
    value_dim = fields.whole("v_head_dim", _WIDTH_MAX)
    query_rank = fields.whole_or("q_lora_rank", _WIDTH_MAX, 0)
    queries = heads * (nope + rope)
    copied, plain = hidden * (rank + rope), rank
    split = rank * heads * (nope + value_dim) + heads * value_dim * hidden
    if query_rank:
        copied, split, plain = copied + hidden * query_rank, split + query_rank * queries, plain + query_rank
    else:
        split += hidden * queries
    layer = DecoderLayer(split, copied=copied, plain=plain)
    # One latent for all heads, which each rank holds.
    return _Attention((MultiHeadLatentAttention(layers, rank, rope),), [layer] * layers, 1, (heads,))


class _Feed(NamedTuple):
    """What follows attention in each layer: one network, or experts and what is always asked beside them."""

    dense: DecoderLayer
    sparse: DecoderLayer
    is_sparse: tuple[bool, ...]
    experts: int
    chosen: int

    def layer(self, index: int) -> DecoderLayer:
        return self.sparse if self.is_sparse[index] else self.dense

    @classmethod
    def read(cls, fields: ConfigFields, model_type: str, layers: int, hidden: int) -> _Feed:
        name = next((each for each in _EXPERT_FIELDS if fields.get(each) is not None), None)
        if name is None and model_type not in _SPARSE:
            wide = fields.whole("intermediate_size", _WIDTH_MAX)
            bias = 2 * wide + hidden if fields.flag("mlp_bias") else 0
            dense = DecoderLayer(_GATED_MATRICES * hidden * wide, plain=bias)
            return cls(dense, dense, (False,) * layers, 0, 0)
        name = name or _SPARSE[model_type]
        experts, chosen = fields.whole(name, _EXPERTS_MAX), fields.whole("num_experts_per_tok", _EXPERTS_MAX)
        fields.is_at_most("num_experts_per_tok", chosen, name, experts)
        sparse = _experts(fields, model_type, hidden, experts)
        is_sparse = _which_are_sparse(fields, model_type, layers)
        dense = sparse
        if not all(is_sparse):
            dense = DecoderLayer(_GATED_MATRICES * hidden * fields.whole("intermediate_size", _WIDTH_MAX))
        return cls(dense, sparse, is_sparse, experts, chosen)


_EXPERT_FIELDS = ("num_local_experts", "n_routed_experts", "num_experts")
# Which of them a family's files have.
_SPARSE = {
    "mixtral": "num_local_experts", "gpt_oss": "num_local_experts", "qwen2_moe": "num_experts",
    "qwen3_moe": "num_experts", "qwen3_next": "num_experts", "deepseek_v2": "n_routed_experts",
    "deepseek_v3": "n_routed_experts", "kimi_k2": "n_routed_experts",
}  # fmt: skip


def _experts(fields: ConfigFields, model_type: str, hidden: int, experts: int) -> DecoderLayer:
    router = hidden * experts
    if model_type in ("mixtral", "gpt_oss"):
        wide = fields.whole("intermediate_size", _WIDTH_MAX)
        # gpt-oss has a bias for the router and for each matrix of each expert.
        bias = experts * (2 * wide + hidden + 1) if model_type == "gpt_oss" else 0
        return DecoderLayer(0, experts=experts * _GATED_MATRICES * hidden * wide, plain=router + bias)
    wide = fields.whole("moe_intermediate_size", _WIDTH_MAX)
    routed = experts * _GATED_MATRICES * hidden * wide
    shared, plain = fields.whole_or("shared_expert_intermediate_size", _WIDTH_MAX, 0, least=0), router
    if shared:
        # A gate of one number weighs it.
        plain += hidden
    if fields.get("n_shared_experts") is not None:
        shared = wide * fields.whole("n_shared_experts", _EXPERTS_MAX, least=0)
    if model_type in ("deepseek_v3", "kimi_k2"):
        # A correction of each expert's score.
        plain += experts
    return DecoderLayer(_GATED_MATRICES * hidden * shared, experts=routed, plain=plain)


def _which_are_sparse(fields: ConfigFields, model_type: str, layers: int) -> tuple[bool, ...]:
    if model_type in ("mixtral", "gpt_oss"):
        return (True,) * layers
    if model_type.startswith(("deepseek", "kimi")):
        first = fields.whole("first_k_dense_replace", _LAYERS_MAX, least=0)
        every = fields.whole_or("moe_layer_freq", _LAYERS_MAX, 1)
        return tuple(index >= first and index % every == 0 for index in range(layers))
    every = fields.whole_or("decoder_sparse_step", _LAYERS_MAX, 1)
    without = fields.get("mlp_only_layers") or []
    if not isinstance(without, list) or not all(type(each) is int for each in without):
        fields.note("mlp_only_layers", "type", "give a list of numbers of layers")
        without = []
    return tuple(index not in without and (index + 1) % every == 0 for index in range(layers))


def _tower(outer: ConfigFields, inner: ConfigFields) -> int:
    """Parameters of the tower for images: attention and a network a layer. Its embeddings are too few to count."""
    tower = outer.get("vision_config")
    if not isinstance(tower, dict):
        return 0
    fields = ConfigFields(tower, path="/vision_config")
    hidden = fields.whole("hidden_size", _WIDTH_MAX)
    layers = fields.whole("num_hidden_layers", _LAYERS_MAX)
    wide = fields.whole("intermediate_size", _WIDTH_MAX)
    inner.problems += fields.problems
    matrices = _GATED_MATRICES if fields.get("model_type") == "pixtral" else _TOWER_MATRICES
    return layers * (4 * hidden * hidden + matrices * hidden * wide)
