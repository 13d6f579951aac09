"""A small model's answer is judged by what it says and how it ends, whole or streamed, and logprobs can be hidden."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cascade import Verdict, Wanted, judge_answer, without_logprobs
from wire.snapshot import Cascade, EscalationReason

ALL: dict[EscalationReason, Any] = {
    "length": True, "empty": True, "refusal": True, "invalid_json": True, "low_confidence": True,
}  # fmt: skip
EVERYTHING = Cascade(pool="tiny", escalate_on=ALL)
PLAIN = Wanted(json=False, own_length=False)


def whole(content: str | None = "It is 21 °C.", finish: str = "stop", **fields: Any) -> bytes:
    message = {"role": "assistant", "content": content, "refusal": None, "tool_calls": [], **fields}
    return json.dumps(
        {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    ).encode()


def stream(*deltas: dict[str, Any], finish: str = "stop") -> bytes:
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    events = [b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n" for choice in choices]
    return b"".join([b": heartbeat\n\n", *events, b"data: [DONE]\n\n"])


def reason(body: bytes, *, streamed: bool = False, cascade: Cascade = EVERYTHING, wanted: Wanted = PLAIN) -> str | None:
    return judge_answer(body, stream=streamed, cascade=cascade, wanted=wanted).reason


def test_a_plain_answer_is_good_enough():
    assert reason(whole()) is None
    assert reason(stream({"role": "assistant"}, {"content": "It is"}, {"content": " 21."}), streamed=True) is None
    assert reason(b'{"choices": [{"index": 0, "text": "21", "finish_reason": "stop"}]}') is None


def test_an_answer_that_was_cut_is_not():
    assert reason(whole(finish="length")) == "length"
    assert reason(stream({"content": "It"}, finish="length"), streamed=True) == "length"


def test_an_answer_as_long_as_its_client_asked_for_was_not_cut():
    assert reason(whole(finish="length"), wanted=Wanted(json=False, own_length=True)) is None


@pytest.mark.parametrize("content", ["", "  \n ", None])
def test_an_empty_answer_is_not(content: str | None):
    assert reason(whole(content)) == "empty"
    assert reason(stream({"content": content}), streamed=True) == "empty"


def test_a_call_of_a_tool_is_an_answer():
    call = [{"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    asked_json = Wanted(json=True, own_length=False)
    assert reason(whole(None, tool_calls=call, finish="tool_calls"), wanted=asked_json) is None
    assert reason(stream({"tool_calls": call}, finish="tool_calls"), streamed=True, wanted=asked_json) is None


def test_what_the_engine_marks_as_refused_is():
    assert reason(whole("", refusal="I cannot help with that.")) == "empty"
    only = msgspec.structs.replace(EVERYTHING, escalate_on={"refusal": True})
    assert reason(whole("", refusal="I cannot help with that."), cascade=only) == "refusal"
    assert reason(whole("I", finish="content_filter"), cascade=only) == "refusal"
    assert reason(whole("I am sorry."), cascade=only) is None


def test_json_is_looked_at_only_where_it_was_asked_for():
    asked = Wanted(json=True, own_length=False)
    assert reason(whole("{oops")) is None
    assert reason(whole("{oops"), wanted=asked) == "invalid_json"
    assert reason(whole('{"a": 1}'), wanted=asked) is None
    assert reason(stream({"content": '{"a"'}, {"content": ": 1}"}), streamed=True, wanted=asked) is None


def test_only_the_reasons_of_the_route_count():
    empty_only = msgspec.structs.replace(EVERYTHING, escalate_on={"empty": True})
    assert reason(whole(finish="length"), cascade=empty_only) is None


def test_what_cannot_be_read_is_empty():
    assert reason(b"[1, 2]") == "empty"
    assert reason(b"\xff\xfe", streamed=True) == "empty"


def sure(*probabilities: float, streamed: bool = False) -> bytes:
    tokens = [{"token": "x", "logprob": math.log(each), "top_logprobs": []} for each in probabilities]
    if streamed:
        parts = [{"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [token]}} for token in tokens]
        return b"".join(b"data: " + json.dumps({"choices": [part]}).encode() + b"\n\n" for part in parts)
    choice = {"index": 0, "message": {"content": "x"}, "logprobs": {"content": tokens}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]}).encode()


def confident(permille: int) -> Cascade:
    return Cascade(pool="tiny", escalate_on={"low_confidence": True}, confidence_permille=permille)


@pytest.mark.parametrize("streamed", [False, True])
def test_confidence_is_the_mean_probability_of_the_tokens(streamed: bool):
    body = sure(0.9, 0.5, 0.7, streamed=streamed)
    judged = judge_answer(body, stream=streamed, cascade=confident(699), wanted=PLAIN)
    assert judged == Verdict(None, 700) or judged == Verdict(None, 699)
    assert reason(body, streamed=streamed, cascade=confident(701)) == "low_confidence"


def test_completions_tell_their_probabilities_in_a_list():
    body = b'{"choices": [{"text": "ab", "logprobs": {"token_logprobs": [null, -0.1, -2.0]}}]}'
    judged = judge_answer(body, stream=False, cascade=confident(600), wanted=PLAIN)
    assert judged == Verdict("low_confidence", int((math.exp(-0.1) + math.exp(-2)) / 2 * 1000))


def test_an_engine_that_tells_no_probability_is_not_trusted():
    assert reason(whole(), cascade=confident(1)) == "low_confidence"


def test_of_several_sequences_the_worst_counts():
    good = json.loads(sure(0.9))["choices"][0]
    poor = json.loads(sure(0.2))["choices"][0] | {"index": 1}
    body = json.dumps({"choices": [good, poor]}).encode()
    assert judge_answer(body, stream=False, cascade=confident(500), wanted=PLAIN) == Verdict("low_confidence", 200)
    cut = json.dumps({"choices": [good, good | {"index": 1, "finish_reason": "length"}]}).encode()
    assert reason(cut) == "length"


@given(st.lists(st.floats(-50, 5), min_size=1, max_size=40))
def test_confidence_lies_between_nothing_and_certainty(logprobs: list[float]):
    body = json.dumps({"choices": [{"text": "x", "logprobs": {"token_logprobs": logprobs}}]}).encode()
    confidence = judge_answer(body, stream=False, cascade=confident(500), wanted=PLAIN).confidence_permille
    assert confidence is not None
    assert 0 <= confidence <= 1000


def test_logprobs_are_hidden_and_the_rest_is_as_it_was():
    body = sure(0.9, 0.5)
    hidden = json.loads(without_logprobs(body, stream=False))
    original = json.loads(body)
    assert hidden["choices"][0].pop("logprobs") is None
    original["choices"][0].pop("logprobs")
    assert hidden == original


def test_logprobs_of_a_stream_are_hidden_event_by_event():
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 1}}\n\n'
    body = b": heartbeat\n\n" + sure(0.9, 0.5, streamed=True) + usage + b"data: [DONE]\n\n"
    hidden = without_logprobs(body, stream=True)
    events, before = hidden.split(b"\n\n"), body.split(b"\n\n")
    assert len(events) == len(before)
    assert (events[0], events[-3], events[-2]) == (before[0], before[-3], before[-2])
    for event in events[1:3]:
        (choice,) = json.loads(event.removeprefix(b"data: "))["choices"]
        assert choice == {"index": 0, "delta": {"content": "x"}, "logprobs": None}


def test_logprobs_are_hidden_whatever_ends_the_lines_of_a_stream():
    body = sure(0.9, streamed=True).replace(b"\n", b"\r\n")
    hidden = without_logprobs(body, stream=True)
    assert hidden.endswith(b"}\r\n\r\n")
    assert json.loads(hidden.removeprefix(b"data: "))["choices"][0]["logprobs"] is None


@given(st.binary(max_size=60))
def test_no_bytes_make_judging_fail(body: bytes):
    for streamed in (True, False):
        without_logprobs(b'data: "logprobs"' + body if streamed else body, stream=streamed)
        judge_answer(b"data: " + body if streamed else body, stream=streamed, cascade=EVERYTHING, wanted=PLAIN)
