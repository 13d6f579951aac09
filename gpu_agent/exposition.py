"""Reading single values out of a Prometheus text page, without parsing all of it."""

from __future__ import annotations

import re

_WHOLE_NUMBER = re.compile("[0-9]{1,15}")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def is_sample_of(line: bytes, metric: bytes) -> bool:
    """Whether a line is a sample of exactly this metric, not of one whose name only begins with it."""
    return line.startswith(metric) and line[len(metric) : len(metric) + 1] in (b"{", b" ")


def labels(sample: bytes) -> dict[str, str]:
    """The labels of one sample line, escapes left as they are."""
    return dict(_LABEL.findall(sample.decode("utf-8", "replace")))


def kv_capacity_tokens(cache_config_info: list[bytes]) -> int | None:
    """KV cache of a vLLM server in tokens, from its `vllm:cache_config_info` samples; None if it does not say.

    Each data-parallel engine of the server is one sample with its own `kv_cache_size_tokens`, so they add up. Never
    num_gpu_blocks × block_size: wrong for hybrid models, and num_gpu_blocks is already a sum over the engines.
    """
    sizes = [labels(sample).get("kv_cache_size_tokens", "") for sample in cache_config_info]
    if not sizes or not all(map(_WHOLE_NUMBER.fullmatch, sizes)):
        return None
    return sum(map(int, sizes))
