"""What an engine decides of a request before it computes anything."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.generation import Api, Generator, Job
from simulator.lengths import LogNormal
from simulator.requests import ApiError
from simulator.tokenizer import train_tokenizer

MODEL_LEN_TOKENS = 200
GENERATOR = Generator(
    train_tokenizer(), ["m", "alias"], MODEL_LEN_TOKENS, LogNormal(median_tokens=30, sigma=1.5), seed=7
)
HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields: Any) -> Job:
    return GENERATOR.plan("chat", msgspec.json.encode({"model": "m", "messages": HELLO, **fields}))


def completion(**fields: Any) -> Job:
    return GENERATOR.plan("completions", msgspec.json.encode({"model": "m", "prompt": "hello", **fields}))


def refusal(api: Api, body: bytes) -> ApiError:
    with pytest.raises(ApiError) as refused:
        GENERATOR.plan(api, body)
    return refused.value


@given(st.integers(1, 150), st.integers(1, 5), st.booleans())
def test_an_answer_is_at_most_as_long_as_asked_and_says_why_it_ends(max_tokens: int, n: int, ignore_eos: bool) -> None:
    for choice in chat(max_tokens=max_tokens, n=n, ignore_eos=ignore_eos).choices:
        assert 1 <= len(choice.tokens) <= max_tokens
        assert (choice.finish_reason == "length") == (len(choice.tokens) == max_tokens)
        if ignore_eos:
            assert len(choice.tokens) == max_tokens


def test_the_same_request_gets_the_same_answer_and_its_choices_differ() -> None:
    first, second = chat(n=2, max_tokens=20, ignore_eos=True), chat(n=2, max_tokens=20, ignore_eos=True)
    assert first == second
    assert first.choices[0].tokens != first.choices[1].tokens
    assert chat(max_tokens=20, ignore_eos=True, seed=1).choices[0].tokens != first.choices[0].tokens


def test_lengths_are_heavy_tailed() -> None:
    lengths = sorted(len(chat(seed=seed).choices[0].tokens) for seed in range(400))
    assert 20 <= lengths[200] <= 45, "half of the answers lie below the median that was asked for"
    assert lengths[-40] > 4 * lengths[200], "a tenth are several times as long"


def test_absent_max_tokens_is_the_rest_of_the_model_for_a_chat_and_16_for_a_completion() -> None:
    job = chat(ignore_eos=True)
    assert len(job.choices[0].tokens) == MODEL_LEN_TOKENS - job.prompt_tokens
    assert len(completion(ignore_eos=True).choices[0].tokens) == 16


def test_max_completion_tokens_beats_max_tokens() -> None:
    assert chat(max_completion_tokens=3, max_tokens=9).choices[0].max_tokens == 3


@pytest.mark.parametrize(("prompt", "count"), [("a b", 1), (["a b", "c"], 2), ([300, 301, 302], 1)])
def test_a_prompt_is_a_text_or_texts_or_tokens(prompt: Any, count: int) -> None:
    job = completion(prompt=prompt, n=2)
    assert len(job.choices) == 2 * count
    prompts = prompt if count == 2 else [prompt]
    assert job.prompt_tokens == sum(len(GENERATOR.tokenize(p)) if isinstance(p, str) else len(p) for p in prompts)


def test_every_served_name_is_a_model() -> None:
    assert chat(model="alias").choices == chat(model=None).choices


LONG = "word " * MODEL_LEN_TOKENS


@pytest.mark.parametrize(
    ("is_chat", "fields", "param", "status"),
    [
        (True, {"messages": []}, "messages", 400),
        (True, {"messages": None}, "messages", 400),
        (True, {"messages": [{"role": "user", "content": 1}]}, "messages[0].content", 400),
        (True, {"messages": [{"role": "user", "content": LONG}]}, "messages", 400),
        (True, {"max_tokens": 0}, "max_tokens", 400),
        (True, {"max_tokens": -5}, "max_tokens", 400),
        (True, {"max_tokens": 1.5}, "max_tokens", 400),
        (True, {"max_tokens": 10**30}, "max_tokens", 400),
        (True, {"max_tokens": MODEL_LEN_TOKENS}, "max_tokens", 400),
        (True, {"max_completion_tokens": MODEL_LEN_TOKENS}, "max_completion_tokens", 400),
        (True, {"n": 0}, "n", 400),
        (True, {"temperature": 3}, "temperature", 400),
        (True, {"stream": "yes"}, "stream", 400),
        (True, {"stream_options": {"include_usage": True}}, "stream_options", 400),
        (True, {"response_format": {"type": "json_object"}}, "response_format", 400),
        (True, {"tools": [{}]}, "tools", 400),
        (True, {"stop": ["x"]}, "stop", 400),
        (True, {"model": "other"}, "model", 404),
        (False, {"prompt": ""}, "prompt", 400),
        (False, {"prompt": []}, "prompt", 400),
        (False, {"prompt": ["a", 1]}, "prompt", 400),
        (False, {"prompt": [10**9]}, "prompt", 400),
        (False, {"prompt": [-1]}, "prompt", 400),
        (False, {"prompt": LONG}, "prompt", 400),
        (False, {"prompt": ["a"] * 100, "n": 2}, "n", 400),
        (False, {"echo": True}, "echo", 400),
        (False, {"suffix": "x"}, "suffix", 400),
    ],
)
def test_bad_input_is_refused_with_its_field(is_chat: bool, fields: dict[str, Any], param: str, status: int) -> None:
    body = {"model": "m", **({"messages": HELLO} if is_chat else {"prompt": "hello"}), **fields}
    error = refusal("chat" if is_chat else "completions", msgspec.json.encode(body))
    assert (error.param, error.status) == (param, status)


LONE_SURROGATE = b'{"messages":[{"role":"user","content":"\\ud800"}]}'
NESTED = b'{"messages":[{"role":"user","content":"a"}],"stop":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"model":"\xff"}', LONE_SURROGATE, NESTED])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    assert refusal("chat", body).status == 400


@given(st.binary(max_size=200))
def test_no_body_is_worse_than_a_refusal(body: bytes) -> None:
    assert refusal("completions", body).status == 400
