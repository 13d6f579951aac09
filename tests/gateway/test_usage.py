"""Streams are cut and read rightly however the network splits them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.usage import (
    GIVEN_UP,
    MAX_EVENT_BYTES,
    NotAnAnswer,
    StreamReader,
    Usage,
    failure_in,
    given_up,
    usage_of_answer,
)

DONE = b"data: [DONE]"
TEXTS = st.text(max_size=20) | st.sampled_from(['"usage"', "usage", "error", "[DONE]", "data: x", "\n\n", "\r\n\r\n"])


def content_event(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode()


USAGE_EVENT = b'data: {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 4}}'


def feed(reader: StreamReader, data: bytes, cuts: list[int]) -> bytes:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return b"".join(reader.feed(data[begin:end]) for begin, end in pairwise(edges)) + reader.finish()


@given(st.lists(TEXTS, max_size=8), st.lists(st.integers(0, 10_000), max_size=12), st.booleans(), st.booleans())
def test_any_split_gives_the_same_events_count_and_usage(
    texts: list[str], cuts: list[int], hide_usage: bool, carriage_returns: bool
):
    mark = b"\r\n\r\n" if carriage_returns else b"\n\n"
    events = [content_event(text) for text in texts]
    data = b"".join(event + mark for event in (*events, USAGE_EVENT, DONE))
    reader = StreamReader(hide_usage=hide_usage)
    expected = (*events, DONE) if hide_usage else (*events, USAGE_EVENT, DONE)
    assert feed(reader, data, cuts) == b"".join(event + mark for event in expected)
    assert reader.usage == Usage(11, 4)
    assert reader.generated_events == len(texts)
    assert reader.failure is None


def test_usage_in_an_event_with_choices_is_read_and_shown():
    event = b'data: {"choices": [{}], "usage": {"prompt_tokens": 1, "completion_tokens": 0}}\n\n'
    reader = StreamReader(hide_usage=True)
    assert reader.feed(event) == event
    assert reader.usage == Usage(1, 0)


def test_an_error_event_is_noticed_and_neither_it_nor_what_follows_is_passed_on():
    reader = StreamReader(hide_usage=True)
    good, bad = content_event("a") + b"\n\n", b'data: {"error": {"message": "gone", "code": 500}}\n\n'
    assert reader.feed(good + bad + good + DONE + b"\n\n") == good
    assert (reader.failure, reader.generated_events, reader.done) == (("gone", 500), 1, False)


def test_an_error_is_no_less_one_for_carrying_usage_or_no_end():
    reader = StreamReader(hide_usage=False)
    bad = b'data: {"error": {"message": "gone"}, "choices": [], "usage": {"prompt_tokens": 1}}'
    assert reader.feed(bad) + reader.finish() == b""
    assert reader.failure == ("gone", None)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (b'{"choices": [{"delta": {"content": ""}, "finish_reason": "abort"}]}', GIVEN_UP),
        (b'{"choices": [{"finish_reason": null}, {"finish_reason": "abort"}]}', GIVEN_UP),
        (b'{"choices": [{"delta": {"content": "abort"}, "finish_reason": "stop"}]}', None),
        (b'{"choices": ["abort"]}', None),
        (b'{"choices": "abort"', None),
    ],
)
def test_an_engine_that_gives_a_request_up_has_failed(ending: bytes, expected: tuple[str, int | None] | None):
    reader = StreamReader(hide_usage=False)
    good, last = content_event("a") + b"\n\n", b"data: " + ending + b"\n\n"
    assert reader.feed(good + last + DONE + b"\n\n") == (good if expected else good + last + DONE + b"\n\n")
    assert reader.failure == expected
    assert given_up(ending) == (expected is not None)


def test_an_event_without_end_is_passed_on_and_memory_stays_bounded():
    reader = StreamReader(hide_usage=True)
    piece = b"x" * 100_000
    passed = sum(len(reader.feed(piece)) for _ in range(30))
    assert passed >= 30 * len(piece) - MAX_EVENT_BYTES - len(piece)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"usage": {"prompt_tokens": 0, "completion_tokens": 0}}', Usage(0, 0)),
        (b'{"usage": {"prompt_tokens": 3}}', Usage(3, 0)),
        (b'{"usage": null}', None),
        (b"{}", None),
        (b'{"usage": {"prompt_tokens": -1}}', None),
        (b'{"usage": {"prompt_tokens": "3"}}', None),
        (b"[]", None),
    ],
)
def test_usage_of_an_answer_is_what_it_says_or_nothing(body: bytes, expected: Usage | None):
    assert usage_of_answer(body) == expected


def test_an_answer_that_is_no_json_is_an_error():
    with pytest.raises(NotAnAnswer):
        usage_of_answer(b"<html>")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b'{"error": {"message": "m", "code": 503}}', ("m", 503)),
        (b'{"error": {"message": "m", "code": "x"}}', ("m", None)),
        (b'{"error": "plain"}', ("plain", None)),
        (b'{"error": null}', None),
        (b'{"choices": []}', None),
        (b"no json", None),
    ],
)
def test_errors_of_engines_are_read_in_their_several_shapes(document: bytes, expected: tuple[str, int | None] | None):
    assert failure_in(document) == expected
