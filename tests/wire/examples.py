"""Documents that tests start from: small, whole, valid."""

from __future__ import annotations

from typing import Any

KEY_HASH = "ab" * 32


def gateway_content() -> dict[str, Any]:
    """A gateway's slice that uses every kind of entry. A fresh copy each call."""
    return {
        "kind": "gateway",
        "schema": 1,
        "tenants": {
            "acme": {
                "weight": 3,
                "tpm_limit": 60_000,
                "models": {"meta-llama/Llama-3.1-8B": True},
                "priority_classes": {"interactive": True},
                "default_priority_class": "interactive",
            },
            "umbrella": {"blocked": True},
        },
        "keys": {KEY_HASH: {"tenant": "acme", "prefix": "hw-AbCdE"}},
        "priority_classes": {"interactive": {"rank": 0, "ageing_ms": 2000}},
        "models": {
            "meta-llama/Llama-3.1-8B": {
                "max_context_tokens": 131_072,
                "default_max_tokens": 512,
                "max_tokens": 4096,
                "tokenizer": "cd" * 32,
            }
        },
        "pools": {"short": {"model": "meta-llama/Llama-3.1-8B", "breaker": {"error_permille": 300}}},
        "engines": {
            "e1": {
                "url": "http://10.0.0.5:8000",
                "kind": "vllm",
                "pool": "short",
                "served_model": "llama",
                "kv_capacity_tokens": 1_048_576,
            }
        },
        "routes": {
            "all": {
                "order": 10,
                "match": {"tenants": {"acme": True}, "max_prompt_tokens": 4000},
                "pools": {"short": 1000},
                "fallbacks": {"short": {"order": 1}},
            }
        },
        "overrides": {
            "o1": {
                "subject_kind": "engine",
                "subject": "e1",
                "state": "open",
                "owner": "ayse",
                "reason": "replacing a fan",
                "expires_at_ms": 1_800_000_000_000,
            }
        },
    }


def node_content(name: str = "node-1", **engines: str) -> dict[str, Any]:
    """A node's slice with vLLM engines given as name=url."""
    return {
        "kind": "node",
        "schema": 1,
        "node": {"name": name},
        "engines": {
            engine: {"url": url, "kind": "vllm", "pool": "short", "model": "llama"} for engine, url in engines.items()
        },
    }
