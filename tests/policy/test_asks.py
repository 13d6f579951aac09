"""What is read of a client's body, and how it is counted."""

from __future__ import annotations

import json

import pytest

from policy.admission import NotAdmitted
from policy.asks import Ask, token_counts


def ask(endpoint="chat", **fields):
    return Ask(endpoint, json.dumps({"model": "m", **fields}).encode())


def test_a_chat_is_its_texts_tools_and_messages():
    tools = [{"type": "function"}]
    read = ask(messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}], tools=tools, n=2)
    assert (read.model, read.sequences, read.messages) == ("m", 2, 1)
    assert read.texts[:2] == ["user", "hi"]
    assert json.loads(read.texts[2]) == tools


def test_token_ids_count_as_they_came():
    read = ask("completions", prompt=[[1, 2, 3], [4]], best_of=2)
    assert (read.fixed_tokens(4), read.estimated_tokens(4), read.sequences) == (4, 4, 4)


def test_an_estimate_is_four_bytes_a_token_for_each_text_and_the_overhead_of_each_message():
    # "user" is one token, 5 bytes are two, and "çç" is 4 bytes.
    read = ask(messages=[{"role": "user", "content": "12345"}, {"role": "user", "content": "çç"}])
    assert read.estimated_tokens(4) == 2 * 4 + (1 + 2) + (1 + 1)


def test_special_tokens_are_not_counted():
    class Words:
        def encode_batch_fast(self, texts, *, add_special_tokens):
            return [text.split() + ["<s>"] * add_special_tokens for text in texts]

    assert token_counts(Words(), ["a b", ""]) == [2, 0]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\xff", "bad_json"),
        (b"[]", "bad_json"),
        (b'{"model": "m"}', "bad_field"),
        (b'{"model": 1, "messages": []}', "bad_field"),
        (
            b'{"model": "m", "messages": [{"role": "u"}], "max_tokens": 1, "max_completion_tokens": 2}',
            "conflicting_max_tokens",
        ),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_by_name(body, reason):
    with pytest.raises(NotAdmitted) as refused:
        Ask("chat", body)
    assert refused.value.reason == reason
