"""What some engines say of themselves in JSON and not on a metrics page: slots, models in memory, limits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from wire.engine_pages.numbers import CAPACITY, Reading

# Flags of llama.cpp's.
_PARALLEL = frozenset({"-np", "--parallel"})
_UNIFIED, _NOT_UNIFIED = frozenset({"-kvu", "--kv-unified"}), frozenset({"-no-kvu", "--no-kv-unified"})

_Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class _Slot(msgspec.Struct):
    n_ctx: _Count
    is_processing: bool = False
    n_prompt_tokens: _Count | None = None


class _LoadedModel(msgspec.Struct):
    name: str
    size: _Count = 0
    size_vram: _Count = 0
    context_length: _Count | None = None
    expires_at: datetime | None = None


class _LoadedModels(msgspec.Struct):
    models: list[_LoadedModel] = []


class _Limits(msgspec.Struct):
    max_batch_total_tokens: _Count | None = None


class Asked(NamedTuple):
    """Of the engine that a page is of. `words`: the command line of its process, None where that is not known."""

    served_model: str = ""
    words: Sequence[str] | None = None


def slots(page: bytes, asked: Asked) -> list[Reading]:
    """llama.cpp's `/slots`: the context of its slots, and the share of it that running requests hold.

    Slots share one cache or have a part each, which only its command line tells: nothing where there are several and
    that is not known. Raises: one of UNREADABLE. Source: llama.cpp/tools/server/server-context.cpp, whose versions
    before 2026 do not say how many tokens a slot holds.
    """
    found = msgspec.json.decode(page, type=list[_Slot])
    if len(found) > 1 and asked.words is None:
        return []
    contexts = [slot.n_ctx for slot in found]
    capacity_tokens = max(contexts, default=0) if _share_a_cache(asked.words or ()) else sum(contexts)
    held = [slot.n_prompt_tokens for slot in found if slot.is_processing]
    readings = [Reading(CAPACITY, (), capacity_tokens)] if capacity_tokens else []
    if readings and None not in held:
        used_tokens = sum(tokens for tokens in held if tokens is not None)
        readings.append(Reading("kv_cache_usage_ratio", (), min(1.0, used_tokens / capacity_tokens)))
    return readings


def _share_a_cache(words: Sequence[str]) -> bool:
    """Whether slots share a cache: they do unless their number was given. Source: llama.cpp/common/arg.cpp"""
    if not _NOT_UNIFIED.isdisjoint(words):
        return False
    if not _UNIFIED.isdisjoint(words):
        return True
    number = next((value for flag, value in pairwise(words) if flag in _PARALLEL), "-1")
    return number.startswith("-")


def loaded_models(page: bytes, asked: Asked) -> list[Reading]:
    """Ollama's `/api/ps`: how many models are in memory, and of the served one where it is and until when.

    Raises: one of UNREADABLE. Source: ollama/docs/api.md
    """
    models = msgspec.json.decode(page, type=_LoadedModels).models
    readings = [Reading("loaded_models", (), len(models))]
    names = (asked.served_model, f"{asked.served_model}:latest")
    served = next((model for model in models if model.name in names), None)
    if asked.served_model:
        readings.append(Reading("model_loaded", (), served is not None))
    if served is None:
        return readings
    readings += [
        Reading("model_memory_bytes", (), served.size),
        Reading("model_gpu_memory_bytes", (), served.size_vram),
    ]
    if served.context_length is not None:
        readings.append(Reading("model_context_tokens", (), served.context_length))
    if served.expires_at is not None and served.expires_at.tzinfo is not None:
        readings.append(Reading("model_expiry_time_seconds", (), served.expires_at.timestamp()))
    return readings


def limits(page: bytes, asked: Asked) -> list[Reading]:
    """TGI's `/info`, which in most versions says how many tokens a batch may have, and so what the KV cache holds.

    Raises: one of UNREADABLE. Source: text-generation-inference/router/src/lib.rs
    """
    tokens = msgspec.json.decode(page, type=_Limits).max_batch_total_tokens
    return [Reading(CAPACITY, (), tokens)] if tokens else []


# Where each kind says it.
STATUS_PAGES: dict[str, tuple[str, Callable[[bytes, Asked], list[Reading]]]] = {
    "llamacpp": ("/slots", slots),
    "ollama": ("/api/ps", loaded_models),
    "tgi": ("/info", limits),
}
