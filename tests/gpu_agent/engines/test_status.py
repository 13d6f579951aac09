from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest

from gpu_agent.engines.status import Asked, limits, loaded_models, slots


def named(readings):
    return {reading.name: reading.value for reading in readings}


def slot(*, busy, tokens=None, n_ctx=4096):
    found = {"id": 0, "n_ctx": n_ctx, "is_processing": busy, "params": {"n_predict": -1}}
    return found if tokens is None else {**found, "n_prompt_tokens": tokens}


SLOTS = json.dumps([slot(busy=True, tokens=2048), slot(busy=False, tokens=4000)]).encode()
ONE_SLOT = json.dumps([slot(busy=True, tokens=2048)]).encode()


@pytest.mark.parametrize(
    ("flags", "capacity_tokens"),
    [
        (["-np", "2"], 8192),
        (["--parallel", "2", "-c", "8192"], 8192),
        (["-np", "2", "--kv-unified"], 4096),
        (["-np", "2", "-kvu"], 4096),
        ([], 4096),
        (["-np", "-1"], 4096),
        (["--no-kv-unified"], 8192),
    ],
)
def test_the_slots_of_llamacpp_are_its_kv_cache_which_they_share_or_not(flags, capacity_tokens):
    asked = Asked(words=["llama-server", "-m", "llama.gguf", *flags])
    assert named(slots(SLOTS, asked)) == {
        "kv_cache_capacity_tokens": capacity_tokens,
        "kv_cache_usage_ratio": 2048 / capacity_tokens,
    }


def test_whether_slots_share_a_cache_matters_to_several_alone():
    assert slots(SLOTS, Asked()) == [], "the cache could be twice as large as it is"
    assert named(slots(ONE_SLOT, Asked())) == {"kv_cache_capacity_tokens": 4096, "kv_cache_usage_ratio": 0.5}


def test_slots_that_do_not_say_what_they_hold_have_a_size_alone():
    assert named(slots(json.dumps([slot(busy=True)]).encode(), Asked())) == {"kv_cache_capacity_tokens": 4096}


@pytest.mark.parametrize("page", [[], [slot(busy=False, n_ctx=0)]])
def test_a_server_without_slots_has_no_kv_cache(page):
    assert slots(json.dumps(page).encode(), Asked()) == []


LOADED = {
    "models": [
        {
            "name": "qwen2.5:7b",
            "model": "qwen2.5:7b",
            "size": 6_654_289_920,
            "size_vram": 5_333_539_264,
            "context_length": 4096,
            "expires_at": "2026-06-04T14:38:31.83753-07:00",
            "details": {"family": "qwen2"},
        },
        {"name": "llama3:latest", "size": 10, "size_vram": 10},
    ]
}


def test_ollama_says_where_the_served_model_is_and_until_when():
    found = named(loaded_models(json.dumps(LOADED).encode(), Asked("qwen2.5:7b")))
    assert found == {
        "loaded_models": 2,
        "model_loaded": 1,
        "model_memory_bytes": 6_654_289_920,
        "model_gpu_memory_bytes": 5_333_539_264,
        "model_context_tokens": 4096,
        "model_expiry_time_seconds": pytest.approx(datetime(2026, 6, 4, 21, 38, 31, 837530, UTC).timestamp()),
    }


def test_a_name_without_a_tag_is_that_of_the_latest():
    assert named(loaded_models(json.dumps(LOADED).encode(), Asked("llama3")))["model_loaded"] == 1


@pytest.mark.parametrize(("page", "loaded"), [(LOADED, 2), ({"models": []}, 0), ({}, 0)])
def test_a_model_that_is_not_in_memory_has_no_size(page, loaded):
    found = named(loaded_models(json.dumps(page).encode(), Asked("gemma3")))
    assert found == {"loaded_models": loaded, "model_loaded": 0}


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"max_batch_total_tokens": 32_000, "version": "2.0.1"}, {"kv_cache_capacity_tokens": 32_000}),
        ({"max_total_tokens": 4096, "version": "3.3.0"}, {}),
    ],
)
def test_tgi_says_its_kv_cache_where_it_says_the_tokens_of_a_batch(info, expected):
    assert named(limits(json.dumps(info).encode(), Asked())) == expected


@pytest.mark.parametrize("read", [slots, loaded_models, limits])
@pytest.mark.parametrize("page", [b"", b"<html>", b"7", b'[{"n_ctx":-1}]', b'{"models":[{}]}', b"\xff"])
def test_what_is_no_such_page_is_refused(read, page):
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        read(page if (read, page) != (limits, b'{"models":[{}]}') else b"[]", Asked())
