"""Models that can be planned with by name: what counts of their published config.json, in the form of those files."""

from __future__ import annotations

from typing import Any

_LLAMA_3 = {"model_type": "llama", "vocab_size": 128_256, "max_position_embeddings": 131_072, "num_key_value_heads": 8}
_QWEN_2 = {"model_type": "qwen2", "vocab_size": 152_064, "max_position_embeddings": 32_768, "use_sliding_window": False}
_QWEN_3 = {"model_type": "qwen3", "vocab_size": 151_936, "max_position_embeddings": 40_960, "head_dim": 128}
_QWEN_3_MOE = {**_QWEN_3, "model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8}
_GPT_OSS = {
    "model_type": "gpt_oss", "vocab_size": 201_088, "max_position_embeddings": 131_072, "hidden_size": 2880,
    "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "sliding_window": 128, "num_experts_per_tok": 4, "attention_bias": True,
    "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip

KNOWN: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-3.1-8B": {
        **_LLAMA_3, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "intermediate_size": 14_336,
    },
    "meta-llama/Llama-3.3-70B": {
        **_LLAMA_3, "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
        "intermediate_size": 28_672,
    },
    "meta-llama/Llama-3.1-405B": {
        **_LLAMA_3, "hidden_size": 16_384, "num_hidden_layers": 126, "num_attention_heads": 128,
        "intermediate_size": 53_248,
    },
    "mistralai/Mistral-7B-v0.3": {
        "model_type": "mistral", "vocab_size": 32_768, "max_position_embeddings": 32_768, "hidden_size": 4096,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14_336,
        "sliding_window": None,
    },
    "mistralai/Mixtral-8x7B-v0.1": {
        "model_type": "mixtral", "vocab_size": 32_000, "max_position_embeddings": 32_768, "hidden_size": 4096,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14_336,
        "sliding_window": None, "num_local_experts": 8, "num_experts_per_tok": 2,
    },
    "mistralai/Mistral-Small-24B-Base-2501": {
        "model_type": "mistral", "vocab_size": 131_072, "max_position_embeddings": 32_768, "hidden_size": 5120,
        "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 32_768, "sliding_window": None,
    },
    "Qwen/Qwen2.5-7B": {
        **_QWEN_2, "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "intermediate_size": 18_944,
    },
    "Qwen/Qwen2.5-32B": {
        **_QWEN_2, "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
        "intermediate_size": 27_648,
    },
    "Qwen/Qwen2.5-72B": {
        **_QWEN_2, "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
        "intermediate_size": 29_568,
    },
    "Qwen/Qwen3-32B": {
        **_QWEN_3, "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
        "intermediate_size": 25_600,
    },
    "Qwen/Qwen3-30B-A3B": {
        **_QWEN_3_MOE, "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "moe_intermediate_size": 768,
    },
    "Qwen/Qwen3-235B-A22B": {
        **_QWEN_3_MOE, "hidden_size": 4096, "num_hidden_layers": 94, "num_attention_heads": 64,
        "num_key_value_heads": 4, "moe_intermediate_size": 1536,
    },
    "Qwen/Qwen3-Next-80B-A3B-Instruct": {
        "model_type": "qwen3_next", "vocab_size": 151_936, "max_position_embeddings": 262_144, "hidden_size": 2048,
        "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
        "full_attention_interval": 4, "linear_num_value_heads": 32, "linear_num_key_heads": 16,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512,
        "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    },
    "google/gemma-3-27b-it": {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 5376, "num_hidden_layers": 62, "num_attention_heads": 32,
            "num_key_value_heads": 16, "head_dim": 128, "intermediate_size": 21_504, "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304},
    },
    "openai/gpt-oss-20b": {**_GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32},
    "openai/gpt-oss-120b": {**_GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128},
    "deepseek-ai/DeepSeek-V3": {
        "model_type": "deepseek_v3", "vocab_size": 129_280, "max_position_embeddings": 163_840, "hidden_size": 7168,
        "num_hidden_layers": 61, "num_attention_heads": 128, "intermediate_size": 18_432, "kv_lora_rank": 512,
        "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3, "moe_layer_freq": 1,
        "quantization_config": {"quant_method": "fp8"},
    },
}  # fmt: skip
