"""Streams are cut and read rightly however the network splits them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

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
from policy.asks import Endpoint

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
        (b'{"object": "response", "usage": {"input_tokens": 5, "output_tokens": 0, "total_tokens": 5}}', Usage(5, 0)),
        (b'{"usage": {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 2}}', Usage(8, 2)),
        (b'{"results": [], "usage": {"total_tokens": 6}}', Usage(6, 0)),
        (b'{"usage": {"output_tokens": 6}}', None),
    ],
)
def test_usage_of_an_answer_is_what_it_says_or_nothing(body: bytes, expected: Usage | None):
    assert usage_of_answer(body) == expected


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"usage"', b"7", b'{"usage": 7, }', b"[" * 100_000])
def test_an_answer_that_is_no_json_object_is_an_error(body: bytes):
    with pytest.raises(NotAnAnswer):
        usage_of_answer(body)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b'{"error": {"message": "m", "code": 503}}', ("m", 503)),
        (b'{"error": {"message": "m", "code": "x"}}', ("m", None)),
        (b'{"error": "plain"}', ("plain", None)),
        (b'{"error": null}', None),
        (b'{"choices": []}', None),
        (b"no json", None),
        (b'{"error": {"message": null, "code": 400}}', ("", 400)),
        (b'{"type": "error", "error": {"type": "overloaded_error", "message": "full"}}', ("full", 503)),
        (b'{"type": "error", "error": {"type": "api_error", "message": "gone"}}', ("gone", None)),
        (b'{"type": "error", "code": "server_error", "message": "gone", "param": null}', ("gone", None)),
        (b'{"type": "error", "code": 400, "message": "bad"}', ("bad", 400)),
        (b'{"type": "response.failed", "response": {"error": {"code": "x", "message": "gone"}}}', ("gone", None)),
        (b'{"type": "response.completed", "response": {"error": null}}', None),
    ],
)
def test_errors_of_engines_are_read_in_their_several_shapes(document: bytes, expected: tuple[str, int | None] | None):
    assert failure_in(document) == expected


def named(event: str, **fields: Any) -> bytes:
    """An event of responses or messages, which say its name twice."""
    return f"event: {event}\ndata: {json.dumps({'type': event, **fields})}\n\n".encode()


CREATED = named("response.created", response={"usage": None, "error": None}, sequence_number=0)
IN_PROGRESS = named("response.in_progress", response={"usage": None, "error": None}, sequence_number=1)
RESPONSE_DELTA = named("response.output_text.delta", delta='so "usage" .delta')
COMPLETED = named("response.completed", response={"error": None, "usage": {"input_tokens": 9, "output_tokens": 4}})
MESSAGE_START = named("message_start", message={"usage": {"input_tokens": 9, "output_tokens": 0}})
BLOCK_DELTA = named("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"})
MESSAGE_DELTA = named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 4})
MESSAGE_STOP = named("message_stop")


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_a_response_tells_its_usage_in_its_last_event(cuts: list[int]):
    reader = StreamReader(hide_usage=False, endpoint="responses")
    whole = CREATED + IN_PROGRESS + RESPONSE_DELTA * 2 + COMPLETED
    assert feed(reader, whole, cuts) == whole
    assert (reader.usage, reader.generated_events, reader.used_tokens(5)) == (Usage(9, 4), 2, (9, 4))


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_messages_tell_their_usage_in_two_events(cuts: list[int]):
    reader = StreamReader(hide_usage=False, endpoint="messages")
    whole = MESSAGE_START + BLOCK_DELTA * 3 + MESSAGE_DELTA + MESSAGE_STOP
    assert feed(reader, whole, cuts) == whole
    assert (reader.usage, reader.generated_events, reader.used_tokens(5)) == (Usage(9, 4), 3, (9, 4))


def test_output_is_counted_where_messages_end_before_they_tell_it():
    reader = StreamReader(hide_usage=False, endpoint="messages")
    reader.feed(MESSAGE_START + BLOCK_DELTA * 2)
    assert (reader.usage, reader.used_tokens(5)) == (None, (9, 2))


ZERO = {"input_tokens": 0, "output_tokens": 0}


@pytest.mark.parametrize(
    ("endpoint", "events", "expected"),
    [
        ("chat", content_event("a") + b"\n\n", (5, 1)),
        ("responses", CREATED + RESPONSE_DELTA * 3, (5, 3)),
        ("responses", RESPONSE_DELTA + named("response.completed", response={"usage": ZERO}), (0, 0)),
        ("messages", MESSAGE_START + BLOCK_DELTA + named("message_delta", delta={}, usage=ZERO), (0, 0)),
    ],
)
def test_what_is_not_told_is_measured_and_counted_and_a_zero_is_a_zero(
    endpoint: Endpoint, events: bytes, expected: tuple[int, int]
):
    reader = StreamReader(hide_usage=False, endpoint=endpoint)
    reader.feed(events)
    assert reader.used_tokens(5) == expected


def test_a_failure_comes_first_though_a_response_was_opened():
    reader = StreamReader(hide_usage=False, endpoint="responses")
    assert reader.feed(CREATED) == b""
    assert reader.feed(IN_PROGRESS) == b""
    assert reader.feed(named("error", code="server_error", message="full")) == b""
    assert reader.failure == ("full", None)


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_comments_are_not_counted_as_output(cuts: list[int]):
    reader = StreamReader(hide_usage=True)
    whole = b": hello\n\n" + b": hello\n\n".join([content_event(":a") + b"\n\n"] * 3) + b": hello\n\n"
    assert feed(reader, whole, cuts) == whole
    assert reader.generated_events == 3


def test_a_comment_leaves_with_the_first_event():
    reader = StreamReader(hide_usage=True)
    event = content_event("a") + b"\n\n"
    assert reader.feed(b": hello\n\n") == b""
    assert reader.feed(event) == b": hello\n\n" + event
    assert reader.feed(b": hello\n\n") == b": hello\n\n"


def test_what_opens_a_response_leaves_with_the_next_event():
    reader = StreamReader(hide_usage=False, endpoint="responses")
    assert reader.feed(CREATED + IN_PROGRESS) == b""
    assert reader.feed(RESPONSE_DELTA) == CREATED + IN_PROGRESS + RESPONSE_DELTA
    assert reader.feed(RESPONSE_DELTA) == RESPONSE_DELTA


def test_what_opens_a_response_does_not_fill_the_memory():
    reader = StreamReader(hide_usage=False, endpoint="responses")
    large = named("response.in_progress", response={"instructions": "x" * 100_000})
    assert sum(len(reader.feed(large)) for _ in range(30)) >= 30 * len(large) - MAX_EVENT_BYTES - len(large)


@pytest.mark.parametrize("data", ["<html>", "hello", "[1]", '"text"', "7"])
def test_a_first_event_that_is_no_object_is_a_failure(data: str):
    reader = StreamReader(hide_usage=True)
    assert reader.feed(f": hello\n\ndata: {data}\n\n".encode()) == b""
    assert reader.failure is not None


def test_an_unfinished_usage_event_takes_nothing_from_the_count():
    reader = StreamReader(hide_usage=False)
    reader.feed(content_event("a") + b"\n\n" + USAGE_EVENT)
    assert reader.finish() == USAGE_EVENT
    assert (reader.generated_events, reader.usage) == (1, Usage(11, 4))
