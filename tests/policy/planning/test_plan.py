"""Plans: the seed's worked examples, what does not fit, and what every plan holds to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.capacity import sequences_that_fit
from policy.kv import Sharding
from policy.planning import lengths as of_lengths
from policy.planning.architectures import shape_of
from policy.planning.fit import Allowance, Serving, fit, usual_allowance
from policy.planning.gpus import GPU_BY_NAME, GPUS, Gpu, Machines, called
from policy.planning.known import KNOWN
from policy.planning.plan import Ask, Plan, make
from policy.planning.shapes import weight_bytes
from policy.planning.speed import Rates

GB = 10**9
# As the seed counts them: 80 GB a card, of which 4 GB for activations and CUDA graphs.
SEEDS_H100 = Gpu("H100", 80 * GB)
SEEDS_ALLOWANCE = Allowance(2 * GB, 2 * GB)
LLAMA_70B = "meta-llama/Llama-3.3-70B"


def ask(name: str, gpu: Gpu, per_node: int = 1, nodes: int = 1, **more: Any) -> Ask:
    given = {
        "weights": "fp8", "kv_dtype": "bf16", "context_tokens": 32_768, "prompts": of_lengths.fixed(3000),
        "outputs": of_lengths.fixed(1000), "link": gpu.link, **more,
    }  # fmt: skip
    return Ask(shape_of(KNOWN[name]), Machines(gpu, per_node, nodes, given.pop("link")), **given)


def test_the_seeds_pair_of_h100_keeps_about_200000_tokens_alive() -> None:
    plan = make(ask(LLAMA_70B, SEEDS_H100, 2, link="nvlink", utilisation_permille=900, allowance=SEEDS_ALLOWANCE))
    assert plan.chosen is not None
    fit = plan.chosen.fit
    assert (fit.sharding, fit.kv_bytes_per_token) == (Sharding(2), 327_680 // 2)
    # The seed takes 70 GB for the weights; embeddings that stay in 16 bits make 72.7 of it.
    assert plan.total_weights_bytes == pytest.approx(72.7 * GB, rel=0.001)
    assert fit.tokens == pytest.approx(200_000, rel=0.05)
    # 50 sequences of 4,000 tokens, 6 of 32,000: the same machine, and a factor of 8.
    assert (sequences_that_fit(fit.tokens, 4000), sequences_that_fit(fit.tokens, 32_000)) == (48, 6)
    doubled = make(
        ask(
            LLAMA_70B, SEEDS_H100, 2, link="nvlink", utilisation_permille=900, allowance=SEEDS_ALLOWANCE, kv_dtype="fp8"
        )
    )  # fmt: skip
    assert doubled.chosen is not None
    assert doubled.chosen.fit.tokens == pytest.approx(2 * fit.tokens, abs=16)


def test_tokens_are_those_that_a_real_vllm_counted() -> None:
    """docs/real-engine.md: vLLM 0.32, this model, 1 GiB of KV cache in fp32, blocks of 128: 524,288 tokens."""
    tiny = shape_of(
        {
            "model_type": "llama", "vocab_size": 2000, "hidden_size": 256, "intermediate_size": 512,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
        }
    )  # fmt: skip
    serving = Serving("bf16", "fp32", 2048, 2048, Allowance(0, 0), utilisation_permille=1000, block_tokens=128)
    found = fit(tiny, serving, 2**30 + weight_bytes(tiny, "bf16"))
    assert (found.kv_budget_bytes, found.tokens) == (2**30, 524_288)


def test_128_sequences_would_be_more_than_twice_what_the_seeds_pair_carries() -> None:
    plan = make(
        ask(
            LLAMA_70B, SEEDS_H100, 2, link="nvlink", utilisation_permille=900, allowance=SEEDS_ALLOWANCE,
            prompts=of_lengths.fixed(3072), outputs=of_lengths.fixed(896),
        )
    )  # fmt: skip
    assert plan.start is not None
    assert plan.start.max_num_seqs.value == plan.start.concurrency.on_average == 47
    assert 128 / plan.start.max_num_seqs.value > 2.5


def test_a_70b_model_in_16_bits_does_not_fit_one_80_gb_card_and_int4_does() -> None:
    refused = make(ask(LLAMA_70B, SEEDS_H100, weights="bf16", context_tokens=8192))
    assert refused.chosen is None
    # 141 GB and what it computes with and one sequence, of 73.6 GB.
    assert refused.choice.closest.missing_bytes == pytest.approx((141.1 + 4 + 2.7 - 73.6) * GB, rel=0.01)
    found = {remedy.change: remedy.value for remedy in refused.remedies}
    assert found == {"weights": "int4", "gpus": "3"}
    assert make(ask(LLAMA_70B, SEEDS_H100, weights="int4", context_tokens=8192)).chosen is not None


def test_each_remedy_is_enough() -> None:
    given = ask(LLAMA_70B, GPU_BY_NAME["H100-SXM"], weights="int4", context_tokens=131_072)
    refused = make(given)
    assert refused.chosen is None
    found = {remedy.change: remedy for remedy in refused.remedies}
    assert found.keys() == {"kv_cache", "context", "gpus"}
    assert make(ask(LLAMA_70B, given.machines.gpu, weights="int4", context_tokens=131_072, kv_dtype="fp8")).chosen
    shorter = int(found["context"].value)
    assert make(ask(LLAMA_70B, given.machines.gpu, weights="int4", context_tokens=shorter)).chosen
    assert make(ask(LLAMA_70B, given.machines.gpu, weights="int4", context_tokens=shorter + 1024)).chosen is None
    assert make(
        ask(LLAMA_70B, given.machines.gpu, int(found["gpus"].value), weights="int4", context_tokens=131_072)
    ).chosen


def test_two_changes_together_are_offered_where_neither_is_enough() -> None:
    refused = make(ask(LLAMA_70B, Gpu("card", 80 * GB), weights="fp8", context_tokens=131_072))
    assert "weights_and_kv_cache" in {remedy.change for remedy in refused.remedies}


def test_four_replicas_in_int4_rather_than_one_engine_over_four() -> None:
    plan = make(ask(LLAMA_70B, GPU_BY_NAME["H100-SXM"], 4, weights="int4"))
    assert plan.chosen is not None
    assert (plan.chosen.kind, plan.chosen.replicas) == ("replicas", 4)
    assert [(step.question, step.answer) for step in plan.choice.steps] == [("Does the model fit one GPU?", "yes")]


@pytest.mark.parametrize(
    ("name", "gpu", "per_node", "nodes", "weights", "kind", "sharding", "replicas"),
    [
        # The smallest degree that fits, within linked GPUs.
        (LLAMA_70B, "H100-SXM", 8, 1, "fp8", "tensor_parallel", Sharding(2), 4),
        (LLAMA_70B, "H100-SXM", 8, 1, "bf16", "tensor_parallel", Sharding(4), 2),
        # Without NVLink a pipeline.
        (LLAMA_70B, "L40S", 8, 1, "bf16", "pipeline", Sharding(1, 4), 2),
        # Beyond a machine: within it tensor parallel, between machines a pipeline.
        ("deepseek-ai/DeepSeek-V3", "H100-SXM", 8, 4, "fp8", "tensor_and_pipeline", Sharding(8, 2), 2),
        ("deepseek-ai/DeepSeek-V3", "H200", 8, 1, "fp8", "tensor_parallel", Sharding(8), 1),
    ],
)
def test_the_tree_leads_to(
    name: str, gpu: str, per_node: int, nodes: int, weights: str, kind: str, sharding: Sharding, replicas: int
) -> None:
    plan = make(ask(name, GPU_BY_NAME[gpu], per_node, nodes, weights=weights))
    assert plan.chosen is not None
    assert (plan.chosen.kind, plan.chosen.fit.sharding, plan.chosen.replicas) == (kind, sharding, replicas)
    assert plan.choice.steps[0].answer == "no"
    assert all(step.why for step in plan.choice.steps)


def test_a_person_may_choose_otherwise_where_heads_allow_it() -> None:
    gpu = GPU_BY_NAME["H100-SXM"]
    plan = make(ask(LLAMA_70B, gpu, 8, sharding=Sharding(8)))
    assert plan.chosen is not None
    assert plan.chosen.replicas == 1
    with pytest.raises(ValueError, match=r"tensor parallel 3 .* 64 attention heads"):
        make(ask(LLAMA_70B, gpu, 8, sharding=Sharding(3)))
    with pytest.raises(ValueError, match="no room for it"):
        make(ask(LLAMA_70B, gpu, 8, sharding=Sharding(16)))


def test_a_hybrid_model_keeps_more_tokens_than_its_layers_would_say() -> None:
    gemma = make(ask("google/gemma-3-27b-it", GPU_BY_NAME["H200"], context_tokens=131_072, weights="bf16"))
    assert gemma.chosen is not None
    fit = gemma.chosen.fit
    assert fit.tokens > fit.kv_budget_bytes // fit.kv_bytes_per_token * 3


def test_the_seeds_queue_cap_and_waits() -> None:
    """8 requests a second and 5 s are 40; at 90 % the mean wait is 9 service times."""
    rates = Rates(prefill_tokens_per_second=1e9, decode_tokens_per_second=8000.0)
    plan = make(ask(LLAMA_70B, GPU_BY_NAME["H200"], rates=rates, rates_from="typed", acceptable_wait_ms=5000))
    assert plan.start is not None
    assert plan.start.queue_cap is not None
    # 1,000 tokens of answer, in a bucket whose longest is 1,023.
    assert plan.start.requests_per_second == pytest.approx(8000 / 1023, rel=0.001)
    assert plan.start.queue_cap.value == 39
    factors = {wait.load_permille: round(wait.service_times) for wait in plan.start.waits}
    assert {permille: factors[permille] for permille in (500, 800, 900, 950, 990)} == {
        500: 1, 800: 4, 900: 9, 950: 19, 990: 99
    }  # fmt: skip
    at_half = plan.start.waits[0]
    assert at_half.seconds == pytest.approx(1023 / 8000, rel=0.001)
    assert at_half.waiting == pytest.approx(0.5)


def test_a_tpot_bounds_the_tokens_of_a_step() -> None:
    rates = Rates(prefill_tokens_per_second=20_000, decode_tokens_per_second=2000)
    free = make(ask(LLAMA_70B, GPU_BY_NAME["H200"], rates=rates))
    bound = make(ask(LLAMA_70B, GPU_BY_NAME["H200"], rates=rates, tpot_ms=50))
    loose = make(ask(LLAMA_70B, GPU_BY_NAME["H200"], rates=rates, tpot_ms=5000))
    values = [plan.start.max_num_batched_tokens.value for plan in (free, bound, loose) if plan.start is not None]
    assert values == [8192, 768, 8192]
    for gpu in ("L4", "A100-80GB-SXM"):
        small = make(ask("Qwen/Qwen2.5-7B", GPU_BY_NAME[gpu], weights="fp8"))
        assert small.start is not None
        assert small.start.max_num_batched_tokens.value == 2048


def test_without_a_speed_there_is_no_wait_to_tell() -> None:
    plan = make(ask(LLAMA_70B, Gpu("unknown", 141 * GB)))
    assert plan.start is not None
    assert (plan.start.rates, plan.start.queue_cap, plan.start.waits) == (None, None, [])


def test_an_estimate_stays_below_the_data_sheet() -> None:
    """One sequence of a 70B in FP8 on an H200: 4.8 TB/s ÷ 71.6 GB read a token are 67 a second at most."""
    plan = make(ask(LLAMA_70B, GPU_BY_NAME["H200"], batched_tokens=1))
    assert plan.start is not None
    assert plan.start.rates is not None
    assert plan.start.max_num_seqs.value == 1
    assert 30 < plan.start.rates.decode_tokens_per_second < 67


def test_the_allowance_is_4_gb_of_an_80_gb_card_and_less_of_small_ones() -> None:
    assert usual_allowance(80 * GB).total == 4 * GB
    assert usual_allowance(141 * GB).total == 4 * GB
    assert usual_allowance(16 * GB).total == 800_000_000


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB-SXM"),
    ],
)
def test_a_driver_s_name_is_known(told: str, name: str) -> None:
    found = called(told, 1 << 40)
    assert found is not None
    assert (found.name, found.memory_bytes) == (name, 1 << 40)


def test_an_unknown_gpu_is_planned_with_by_its_memory_alone() -> None:
    found = called("NVIDIA X900", 10 * GB)
    assert found == Gpu("NVIDIA X900", 10 * GB)
    assert called("NVIDIA X900", None) is None


def test_every_gpu_of_the_table_is_found_by_its_own_names() -> None:
    for gpu in GPUS:
        assert all(called(name, None) == gpu for name in gpu.nvml_names), gpu.name


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(KNOWN)), st.sampled_from(GPUS), st.integers(1, 8), st.integers(1, 4),
    st.sampled_from(["bf16", "fp8", "int4"]), st.sampled_from(["bf16", "fp8"]), st.integers(1, 131_072),
    st.sampled_from(["nvlink", "pcie"]),
)  # fmt: skip
def test_a_plan_fits_or_says_what_is_missing(
    name: str, gpu: Gpu, per_node: int, nodes: int, weights: str, kv: str, context: int, link: str
) -> None:
    given = ask(name, gpu, per_node, nodes, weights=weights, kv_dtype=kv, context_tokens=context, link=link)
    plan: Plan = make(given)
    if plan.chosen is None:
        assert plan.choice.closest.missing_bytes > 0
        return
    fit, start = plan.chosen.fit, plan.start
    assert start is not None
    assert fit.weights_bytes + fit.allowance_bytes + fit.longest_sequence_bytes <= fit.usable_bytes
    assert plan.chosen.replicas * fit.sharding.gpus + plan.chosen.spare_gpus == given.machines.gpus
    assert fit.longest_context_tokens == context
    assert fit.tokens >= context // 16 * 16
    assert start.concurrency.worst_case <= start.concurrency.for_share <= start.concurrency.on_average
    assert 1 <= start.max_num_seqs.value <= max(1, start.concurrency.for_share)
    assert start.max_num_seqs.value <= start.max_num_batched_tokens.value
