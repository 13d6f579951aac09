"""config.json: known models come out to their published numbers, and every wrong field is refused by its name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.kv import GroupedQueryAttention, Sharding, SlidingWindowAttention, sequence_bytes
from policy.planning.architectures import MODEL_TYPES, shape_of
from policy.planning.config_json import TEXT_MAX_BYTES, BadConfig, read_text
from policy.planning.known import KNOWN
from policy.planning.shapes import layers_of_stages, stored_bytes, weight_bytes

KIB, MIB, GB = 2**10, 2**20, 10**9
LLAMA = KNOWN["meta-llama/Llama-3.3-70B"]


# As the models' own pages have them: the sum of the shapes in their safetensors files.
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("meta-llama/Llama-3.1-8B", 8_030_261_248),
        ("meta-llama/Llama-3.3-70B", 70_553_706_496),
        ("meta-llama/Llama-3.1-405B", 405_853_388_800),
        ("mistralai/Mistral-7B-v0.3", 7_248_023_552),
        ("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704),
        ("mistralai/Mistral-Small-24B-Base-2501", 23_572_403_200),
        ("Qwen/Qwen2.5-7B", 7_615_616_512),
        ("Qwen/Qwen2.5-32B", 32_763_876_352),
        ("Qwen/Qwen2.5-72B", 72_706_203_648),
        ("Qwen/Qwen3-32B", 32_762_123_264),
        ("Qwen/Qwen3-30B-A3B", 30_532_122_624),
        ("Qwen/Qwen3-235B-A22B", 235_093_634_560),
        ("openai/gpt-oss-20b", 20_914_757_184),
        ("openai/gpt-oss-120b", 116_829_156_672),
        # Without the 14 B of multi-token prediction.
        ("deepseek-ai/DeepSeek-V3", 671_026_419_200),
    ],
)
def test_a_model_has_its_published_number_of_parameters(name: str, parameters: int) -> None:
    assert shape_of(KNOWN[name]).parameters == parameters


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        # With a tower for images, whose embeddings are not counted.
        ("google/gemma-3-27b-it", 27.43, 27.0),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 79.67, 3.56),
        ("deepseek-ai/DeepSeek-V3", 671.0, 36.6),
        ("openai/gpt-oss-120b", 116.8, 5.2),
        ("mistralai/Mixtral-8x7B-v0.1", 46.7, 12.8),
    ],
)
def test_of_experts_few_are_asked(name: str, billions: float, active: float) -> None:
    shape = shape_of(KNOWN[name])
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.001)
    assert shape.active_parameters / 1e9 == pytest.approx(active, rel=0.01)


@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("meta-llama/Llama-3.1-8B", 128),
        ("mistralai/Mistral-7B-v0.3", 128),
        ("mistralai/Mixtral-8x7B-v0.1", 128),
        ("meta-llama/Llama-3.3-70B", 320),
        ("Qwen/Qwen2.5-72B", 320),
        ("meta-llama/Llama-3.1-405B", 504),
        ("Qwen/Qwen2.5-7B", 56),
        ("Qwen/Qwen2.5-32B", 256),
        ("Qwen/Qwen3-32B", 256),
        ("Qwen/Qwen3-235B-A22B", 188),
        ("mistralai/Mistral-Small-24B-Base-2501", 160),
        ("deepseek-ai/DeepSeek-V3", 68.625),
    ],
)
def test_a_token_takes_what_the_table_of_known_models_says(name: str, kib: float) -> None:
    assert sequence_bytes(shape_of(KNOWN[name]).kv, 16) == 16 * kib * KIB


@pytest.mark.parametrize(
    ("name", "full", "windowed", "window"),
    [("google/gemma-3-27b-it", 80, 416, 1024), ("openai/gpt-oss-120b", 36, 36, 128)],
)
def test_windows_are_read_off_the_file(name: str, full: int, windowed: int, window: int) -> None:
    kv = shape_of(KNOWN[name]).kv
    assert sequence_bytes(kv, 100 * window) == (100 * window * full + window * windowed) * KIB


def test_a_gated_delta_net_keeps_a_state_and_few_layers_a_cache() -> None:
    kv = shape_of(KNOWN["Qwen/Qwen3-Next-80B-A3B-Instruct"]).kv
    assert sequence_bytes(kv, 0) / MIB == pytest.approx(37.7, abs=0.05)
    assert sequence_bytes(kv, 16_000) == sequence_bytes(kv, 0) + 16_000 * 24 * KIB


def test_weights_take_what_published_files_take() -> None:
    shape = shape_of(LLAMA)
    # The seed's 140 GB in 16 bits; AWQ files of it have 39.8 GB, FP8 ones 72.7 GB: embeddings stay as they are.
    assert weight_bytes(shape, "bf16") == 2 * shape.parameters == pytest.approx(141 * GB, rel=0.01)
    assert weight_bytes(shape, "fp8") == pytest.approx(72.7 * GB, rel=0.001)
    assert weight_bytes(shape, "int4") == pytest.approx(39.77 * GB, rel=0.001)
    # gpt-oss keeps all but its experts in 16 bits: 65.2 GB on disk.
    assert weight_bytes(shape_of(KNOWN["openai/gpt-oss-120b"]), "mxfp4") == pytest.approx(65.2 * GB, rel=0.002)


def test_a_group_of_int4_weights_has_a_scale_and_a_zero() -> None:
    assert stored_bytes(1024, "int4") == 1024 // 2 + 8 * 2 + 8 // 2
    assert stored_bytes(1024, "mxfp4") == 1024 // 2 + 1024 // 32


def test_ranks_and_stages_share_the_weights_out() -> None:
    shape = shape_of(LLAMA)
    whole = weight_bytes(shape, "fp8")
    assert weight_bytes(shape, "fp8", Sharding(2)) == pytest.approx(whole / 2, rel=0.001)
    # 16 ranks share 8 heads: each is there twice.
    sixteenth = weight_bytes(shape, "bf16", Sharding(16))
    assert sixteenth > weight_bytes(shape, "bf16") / 16 * 1.01
    # Of two stages each has an end of its own; the middle ones of four have none.
    assert weight_bytes(shape, "bf16", Sharding(1, 2)) == pytest.approx(70.55 * GB, rel=0.001)


@given(st.integers(1, 200), st.integers(1, 16))
def test_every_layer_is_in_one_stage(layers: int, stages: int) -> None:
    counts = layers_of_stages(max(layers, stages), stages)
    assert sum(counts) == max(layers, stages)
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("name", KNOWN)
def test_each_field_that_counts_is_missed_by_its_name(name: str) -> None:
    # What a file may leave out, since transformers' own classes say what then holds.
    optional = {
        "sliding_window", "use_sliding_window", "attention_bias", "quantization_config", "vision_config", "q_lora_rank",
        "n_shared_experts", "shared_expert_intermediate_size", "moe_layer_freq", "model_type", "layer_types",
    }  # fmt: skip
    config = KNOWN[name]
    inner = config.get("text_config", config)
    defaults = {"num_attention_heads", "num_key_value_heads", "head_dim"} if inner is not config else set()
    if config["model_type"] == "mistral":
        defaults = {"head_dim"}
    for field in inner.keys() - optional - defaults:
        broken = copy.deepcopy(config)
        del broken.get("text_config", broken)[field]
        with pytest.raises(BadConfig) as refused:
            shape_of(broken)
        assert [(each.path.rpartition("/")[2], each.rule) for each in refused.value.problems] == [(field, "required")]


@pytest.mark.parametrize("value", [0, -1, 1.5, float("nan"), float("inf"), True, "80", None, [80], 10**30])
@pytest.mark.parametrize("field", ["num_hidden_layers", "hidden_size", "vocab_size", "num_key_value_heads"])
def test_an_absurd_number_is_refused_by_its_name(field: str, value: Any) -> None:
    with pytest.raises(BadConfig) as refused:
        shape_of({**LLAMA, field: value})
    assert {each.path for each in refused.value.problems} == {f"/{field}"}


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(BadConfig, match=r"hidden_size.*vocab_size") as refused:
        shape_of({**LLAMA, "hidden_size": 0, "vocab_size": -3})
    assert len(refused.value.problems) == 2


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"num_key_value_heads": 7}, "/num_key_value_heads"),
        ({"hidden_size": 8191}, "/num_attention_heads"),
        ({"layer_types": ["full_attention"]}, "/layer_types"),
        ({"layer_types": ["sparse"] * 80}, "/layer_types"),
        ({"layer_types": ["sliding_attention"] * 80}, "/sliding_window"),
        ({"tie_word_embeddings": "yes"}, "/tie_word_embeddings"),
        ({"model_type": "bert"}, "/model_type"),
        ({"model_type": None}, "/model_type"),
        ({"model_type": "gemma3"}, "/text_config"),
        ({"model_type": "gemma3", "text_config": {"model_type": "bert"}}, "/text_config/model_type"),
        ({"quantization_config": "fp8"}, "/quantization_config"),
        ({"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5}, "/num_experts_per_tok"),
    ],
)
def test_what_does_not_go_together_is_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(BadConfig) as refused:
        shape_of({**LLAMA, **change})
    assert [each.path for each in refused.value.problems] == [path]


@pytest.mark.parametrize(
    ("quantised", "stored"),
    [
        (None, "bf16"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 3}, None),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4}}}}, "int4"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 8}}}}, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": "what"}, None),
        ({"quant_method": "bitnet"}, None),
    ],
)
def test_the_file_says_how_its_weights_lie(quantised: Any, stored: str | None) -> None:
    assert shape_of({**LLAMA, "quantization_config": quantised}).stored == stored


def test_older_mistrals_have_a_window_in_every_layer_and_qwen2_beyond_some() -> None:
    mistral = shape_of({**KNOWN["mistralai/Mistral-7B-v0.3"], "sliding_window": 4096})
    assert mistral.kv == (SlidingWindowAttention(32, 8, 128, 4096),)
    qwen = {**KNOWN["Qwen/Qwen2.5-7B"], "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20}
    assert shape_of(qwen).kv == (GroupedQueryAttention(20, 4, 128), SlidingWindowAttention(8, 4, 128, 4096))
    assert shape_of({**qwen, "use_sliding_window": False}).kv == (GroupedQueryAttention(28, 4, 128),)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"[" * 100_000, "depth"),
        (b'{"a":' * 90_000, "depth"),
        (b" " * (TEXT_MAX_BYTES + 1), "length"),
        (b"{}" * 5_000_000, "length"),
        (b'{"hidden_size": NaN}', "json"),
        (b'{"hidden_size": Infinity}', "json"),
        (b'{"hidden_size": 1, "hidden_size": 2}', "json"),
        (b"\xff\xfe{", "json"),
        (b"model_type: llama", "json"),
        (b"", "json"),
        (b"[1]", "type"),
        (b"null", "type"),
    ],
)
def test_a_text_that_is_no_config_is_refused_with_what_is_wrong(text: bytes, rule: str) -> None:
    with pytest.raises(BadConfig) as refused:
        read_text(text)
    assert [each.rule for each in refused.value.problems] == [rule]


documents = st.dictionaries(
    st.sampled_from(sorted(LLAMA.keys() | {"text_config", "layer_types", "quantization_config", "sliding_window"})),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ),
)


@given(documents, st.sampled_from(MODEL_TYPES))
def test_whatever_is_in_a_file_it_is_read_or_refused(document: dict[str, Any], model_type: str) -> None:
    try:
        shape = shape_of({**LLAMA, **document, "model_type": model_type})
    except BadConfig as refused:
        told = refused.problems
    else:
        told, known = [], shape.parameters
        assert known > 0
    assert all(problem.path.startswith("/") and problem.message for problem in told)
