"""What is read of a client's body, and how it is counted."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.admission import NotAdmitted
from policy.asks import APIS, Ask
from policy.asks.body import MAX_COLLECTIONS, MAX_DEPTH, MAX_ITEMS, MAX_STRINGS, bad_field
from wire.snapshot import Model

BODIES: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "12345678"}]},
    "completions": {"prompt": "12345678"},
    "responses": {"input": "12345678"},
    "embeddings": {"input": "12345678"},
    "rerank": {"query": "1234", "documents": ["1234"]},
    "messages": {"messages": [{"role": "user", "content": "12345678"}], "max_tokens": 5},
}


def ask(endpoint="chat", **fields):
    return Ask(endpoint, json.dumps({"model": "m", **fields}).encode())


def sent(read, served="s", max_tokens=7, **options):
    """What an engine would be sent."""
    return json.loads(read.for_engine(served, max_tokens, **options))


def read_or_refused(endpoint, body):
    """The body as it is read, or the reason for which it is refused."""
    try:
        return Ask(endpoint, body)
    except NotAdmitted as refused:
        return refused.reason


def test_a_chat_is_its_texts_tools_and_messages():
    tools = [{"type": "function"}]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}
    parts = [{"type": "text", "text": "hi"}, image]
    read = ask(messages=[{"role": "user", "content": parts}], tools=tools, n=2)
    assert (read.model, read.sequences, read.messages) == ("m", 2, 1)
    assert read.texts[:2] == ["user", "hi"]
    assert json.loads(read.texts[2]) == json.loads(read.tools) == tools
    assert sent(read)["messages"][0]["content"] == parts


def test_a_response_is_its_instructions_items_and_tools():
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_image", "image_url": "d"}]},
        {"type": "function_call", "name": "look", "arguments": '{"at": 1}', "call_id": "c"},
        {"type": "custom_tool_call", "name": "say", "input": "so", "call_id": "d"},
        {"type": "function_call_output", "call_id": "c", "output": "seen"},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "d"}},
    ]
    read = ask("responses", input=items, instructions="be brief", tools=[{"type": "function"}], max_output_tokens=9)
    assert read.texts == ["be brief", "user", "hi", "look", '{"at": 1}', "say", "so", "seen", '[{"type": "function"}]']
    assert (read.messages, read.asked_max_tokens, read.sequences) == (6, 9, 1)


def test_messages_are_their_system_blocks_and_tools():
    blocks = [
        {"type": "text", "text": "hi"},
        {"type": "image", "source": {"type": "base64", "data": "d"}},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"at": 1}},
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "seen"}]},
    ]
    messages = [{"role": "user", "content": blocks}, {"role": "assistant", "content": "so"}]
    read = ask("messages", messages=messages, system=[{"type": "text", "text": "be brief"}], max_tokens=9)
    assert read.texts == ["be brief", "user", "hi", "look", '{"at": 1}', "seen", "assistant", "so"]
    assert (read.messages, read.asked_max_tokens) == (3, 9)


def test_token_ids_count_as_they_came():
    read = ask("completions", prompt=[[1, 2, 3], [4]], best_of=2)
    assert (read.estimated_tokens(4), read.sequences) == ((4, 3), 4)


def test_each_input_of_a_list_is_counted_and_the_longest_must_fit():
    read = ask("embeddings", input=["1234", "12345678", ""])
    assert (read.estimated_tokens(4), read.sequences, read.generates) == ((3, 2), 1, False)


def test_a_query_is_counted_again_for_each_document():
    read = ask("rerank", query="12345678", documents=["1234", {"text": "12345678"}, ""])
    assert (read.estimated_tokens(4), read.sequences) == ((3 * 2 + 1 + 2, 2 + 2), 1)


def test_an_estimate_is_four_bytes_a_token_for_each_text_and_the_overhead_of_each_message():
    # "user" is one token, 5 bytes are two, and "çç" is 4 bytes.
    read = ask(messages=[{"role": "user", "content": "12345"}, {"role": "user", "content": "çç"}])
    whole = 2 * 4 + (1 + 2) + (1 + 1)
    assert read.estimated_tokens(4) == (whole, whole)


@pytest.mark.parametrize("endpoint", BODIES)
def test_an_engine_is_sent_its_own_names_and_a_bound_where_it_generates(endpoint):
    read = ask(endpoint, **BODIES[endpoint], unknown={"a": [1, None]}, priority=-9)
    changed = sent(read)
    bound = {"responses": "max_output_tokens", "embeddings": None, "rerank": None}.get(endpoint, "max_tokens")
    kept = {name: value for name, value in BODIES[endpoint].items() if name != bound}
    assert changed == {"model": "s", **kept, "unknown": {"a": [1, None]}, **({bound: 7} if bound else {})}
    assert sent(read, priority=3)["priority"] == 3


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_usage_is_asked_for_on_streams_that_tell_it_only_so(endpoint):
    read = ask(endpoint, **BODIES[endpoint], stream=True, stream_options={"other": 1, "continuous_usage_stats": True})
    assert (read.stream, read.wants_usage) == (True, False)
    assert sent(read)["stream_options"] == {"other": 1, "include_usage": True}
    assert ask(endpoint, **BODIES[endpoint], stream=True, stream_options={"include_usage": True}).wants_usage


@pytest.mark.parametrize("endpoint", ["responses", "messages"])
def test_nothing_is_asked_for_where_usage_comes_by_itself(endpoint):
    assert "stream_options" not in sent(ask(endpoint, **BODIES[endpoint], stream=True))


def test_unknown_fields_are_carried_byte_for_byte():
    odd = b'{"z":1.50e+2, "y" :"\\u0041\\/", "x":[ 1 ,{"b":1,"a":2} ], "big":123456789012345678901234567890}'
    body = b'{"model":"m","prompt":"p","odd":%b}' % odd
    assert odd in Ask("completions", body).for_engine("s", 7)


@pytest.mark.parametrize(
    ("endpoint", "fields", "expected"),
    [
        ("chat", {"response_format": {"type": "json_object"}}, {"type": "json_object"}),
        ("responses", {"text": {"format": {"type": "json_schema"}}}, {"type": "json_schema"}),
        ("responses", {"text": {"verbosity": "low"}}, None),
        ("responses", {"text": "x"}, None),
        ("messages", {"output_config": {"format": {"type": "json_schema"}}}, {"type": "json_schema"}),
        ("embeddings", {"response_format": {}}, None),
    ],
)
def test_the_form_of_an_answer_is_found_under_each_name(endpoint, fields, expected):
    found = ask(endpoint, **BODIES[endpoint], **fields).response_format
    assert (json.loads(found) if found else None) == expected


LONG = "1234" * 3000
MODEL = Model(max_context_tokens=1000, default_max_tokens=100, max_tokens=400)


@pytest.mark.parametrize(
    ("endpoint", "fields", "expected"),
    [
        ("completions", {"prompt": LONG}, (3000, 3000)),
        ("completions", {"prompt": LONG, "truncate_prompt_tokens": None}, (3000, 3000)),
        # Not fields of these APIs.
        ("chat", {"messages": [{"role": "u", "content": LONG}], "truncation": "auto"}, (3005, 3005)),
        ("responses", {"input": LONG, "truncate_prompt_tokens": 7}, (3004, 3004)),
        ("messages", {"messages": [{"role": "u", "content": LONG}], "truncate_prompt_tokens": 7}, (3005, 3005)),
        # The context less the output: the default, what is asked for, at most the model's.
        ("completions", {"prompt": LONG, "truncate_prompt_tokens": -1}, (900, 900)),
        ("completions", {"prompt": LONG, "truncate_prompt_tokens": -1, "max_tokens": 50}, (950, 950)),
        ("completions", {"prompt": LONG, "truncate_prompt_tokens": -1, "max_tokens": 5000}, (600, 600)),
        ("completions", {"prompt": LONG, "truncate_prompt_tokens": 7}, (7, 7)),
        ("completions", {"prompt": [LONG, "1234"], "truncate_prompt_tokens": 10**30}, (1800, 900)),
        ("completions", {"prompt": "1234", "truncate_prompt_tokens": 7}, (1, 1)),
        ("embeddings", {"input": [LONG, "1234"], "truncate_prompt_tokens": -1}, (2000, 1000)),
        ("rerank", {"query": "1234", "documents": [LONG], "truncate_prompt_tokens": 9}, (9, 9)),
        ("responses", {"input": LONG, "truncation": "auto"}, (900, 900)),
        ("responses", {"input": LONG, "truncation": "disabled"}, (3004, 3004)),
    ],
)
def test_a_prompt_that_the_engine_shortens_counts_as_what_is_left(endpoint, fields, expected):
    read = ask(endpoint, **fields)
    whole = read.estimated_tokens(4)
    assert (read.shortened(whole, MODEL) if read.asks_to_shorten else whole) == expected


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses", "messages"])
def test_names_that_an_engine_lets_win_over_the_bounds_are_not_sent(endpoint):
    read = ask(endpoint, **BODIES[endpoint], n_predict=10**6, n_cmpl=9, priority=-9)
    assert not {"n_predict", "n_cmpl", "priority"} & sent(read).keys()


@pytest.mark.parametrize(
    ("endpoint", "body", "reason"),
    [
        ("chat", b"\xff", "bad_json"),
        ("chat", b"[]", "bad_json"),
        ("chat", b'{"model": "m"}', "bad_field"),
        ("chat", b'{"model": 1, "messages": []}', "bad_field"),
        (
            "chat",
            b'{"model": "m", "messages": [{"role": "u"}], "max_tokens": 1, "max_completion_tokens": 2}',
            "conflicting_max_tokens",
        ),
        ("responses", b'{"model": "m", "input": []}', "bad_field"),
        ("responses", b'{"model": "m", "input": "x", "background": true}', "bad_field"),
        ("responses", b'{"model": "m", "input": [{"type": "item_reference", "id": "i"}]}', "bad_field"),
        ("responses", b'{"model": "m", "input": "x", "previous_response_id": "r"}', "bad_field"),
        ("responses", b'{"model": "m", "input": "x", "conversation": {"id": "c"}}', "bad_field"),
        ("embeddings", b'{"model": "m", "input": {}}', "bad_field"),
        ("rerank", b'{"model": "m", "documents": ["d"]}', "bad_field"),
        ("rerank", b'{"model": "m", "query": "q", "documents": []}', "bad_field"),
        ("rerank", b'{"model": "m", "query": "q", "documents": [1]}', "bad_field"),
        ("messages", b'{"model": "m", "messages": [{"role": "u"}]}', "bad_field"),
        ("messages", b'{"model": "m", "messages": [{"role": "u", "content": 1}]}', "bad_field"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_by_name(endpoint, body, reason):
    with pytest.raises(NotAdmitted) as refused:
        Ask(endpoint, body)
    assert refused.value.reason == reason


def nested(depth, filler=""):
    opened, closed = '[{"a":' * (depth // 2) + "[" * (depth % 2), "]" * (depth % 2) + "}]" * (depth // 2)
    return f'{{"model": "m", "prompt": "{filler}", "z": {opened}1{closed}}}'.encode()


@pytest.mark.parametrize("filler", ["", "}{][" * 200, '\\"[' * 200])
def test_nesting_is_bounded_whatever_texts_hold(filler):
    Ask("completions", nested(MAX_DEPTH - 1, filler))
    with pytest.raises(NotAdmitted) as refused:
        Ask("completions", nested(MAX_DEPTH, filler))
    assert refused.value.reason == "bad_json"


ODD = st.sampled_from(
    [b'"', b"\\", b"\\u", b"\\ud83d", b"{", b"]", b",", b":", b"-", b"1e", b".", b"\0", b"\x80", b"\t"]
)


def test_a_refusal_repeats_little_of_a_body():
    said = msgspec.ValidationError(f"Invalid enum value '{'x' * 10_000}' - at `$.verdict`")
    refusal = bad_field(said)
    assert (refusal.param, len(refusal.message) < 1_000) == ("verdict", True)


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        ("chat", {"messages": [{"role": "u"}] * (MAX_ITEMS + 1)}),
        ("chat", {"messages": [{"role": "u", "content": [{"text": "t"}] * MAX_COLLECTIONS}]}),
        ("messages", {"messages": [{"role": "u", "content": "t"}] * (MAX_ITEMS + 1)}),
        ("responses", {"input": [{"role": "u"}] * (MAX_ITEMS + 1)}),
        ("embeddings", {"input": ["t"] * (MAX_ITEMS + 1)}),
        ("completions", {"prompt": [[1]] * (MAX_ITEMS + 1)}),
        ("rerank", {"query": "q", "documents": ["t"] * (MAX_ITEMS + 1)}),
        ("completions", {"prompt": "p", "x": ["t"] * MAX_STRINGS}),
        ("completions", {"prompt": "p", "x": [[]] * MAX_COLLECTIONS}),
        ("completions", {"prompt": "p", **{f"x{number}": 1 for number in range(MAX_STRINGS)}}),
    ],
)
def test_more_than_can_be_read_at_once_is_refused(endpoint, fields):
    assert read_or_refused(endpoint, json.dumps({"model": "m", **fields}).encode()) in ("bad_json", "bad_field")


def test_as_much_as_can_be_is_read_whatever_texts_hold():
    quotes, brackets = '"' * 4 * MAX_STRINGS, "{[" * 2 * MAX_COLLECTIONS
    assert ask("embeddings", input=["t"] * MAX_ITEMS, user=quotes, x=brackets).estimated_tokens(4).total == MAX_ITEMS


@pytest.mark.parametrize("end", [b'"' + b"a" * 10**6, b'"' + b"\\" * 10**6, b'"' * 10**6, b"[" * 10**6])
def test_a_body_without_end_is_refused_and_not_searched_for_ever(end):
    assert read_or_refused("chat", b'{"model": "m", "x": [' + b"[]," * MAX_DEPTH + end) == "bad_json"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KNOWN = (
    "model",
    "messages",
    "prompt",
    "input",
    "query",
    "documents",
    "system",
    "instructions",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "best_of",
    "stream",
    "stream_options",
    "tools",
    "background",
    "truncation",
    "text",
)


@given(st.sampled_from(sorted(APIS)), st.dictionaries(st.sampled_from(KNOWN) | st.text(max_size=5), JSON, max_size=8))
def test_any_object_is_read_or_refused_by_name(endpoint, fields):
    body = json.dumps({"model": "m", **BODIES[endpoint], **fields}).encode()
    read = read_or_refused(endpoint, body)
    if isinstance(read, str):
        assert read in ("bad_json", "bad_field", "conflicting_max_tokens")
        return
    total, longest = read.estimated_tokens(4)
    assert 0 <= longest <= total
    assert read.sequences >= 1
    changed, given = sent(read), json.loads(body)
    ours = {"model", "priority", "n_predict", "n_cmpl", "stream_options", read.api.output_field, *read.api.dropped}
    assert {k: v for k, v in changed.items() if k not in ours} == {k: v for k, v in given.items() if k not in ours}


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused_by_name(body):
    for endpoint in APIS:
        with pytest.raises(NotAdmitted):
            Ask(endpoint, body)


@given(
    st.sampled_from(sorted(APIS)),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), st.binary(max_size=3) | ODD), min_size=1, max_size=3),
)
def test_what_is_let_through_is_json_to_an_engine_as_well(endpoint, edits):
    body = json.dumps({"model": "m", **BODIES[endpoint], "user": "é", "seed": 1.5}, ensure_ascii=False).encode()
    for at, removed, inserted in edits:
        at %= len(body)
        body = body[:at] + inserted + body[at + removed :]
    read = read_or_refused(endpoint, body)
    if isinstance(read, str):
        return
    given, changed = json.loads(body), sent(read)
    assert given["model"] == read.model
    assert changed[read.api.text_field] == given[read.api.text_field]


@given(
    st.sampled_from(sorted(APIS)),
    st.lists(st.tuples(st.sampled_from(["model", "stream", "max_tokens", "x"]), JSON), max_size=6),
)
def test_what_is_read_of_fields_given_twice_is_what_an_engine_reads(endpoint, pairs):
    rows = [("model", "first"), *BODIES[endpoint].items(), *pairs, ("model", "last"), ("stream", False)]
    body = "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in rows) + "}"
    read = read_or_refused(endpoint, body.encode())
    if isinstance(read, str):
        return
    assert (read.model, read.stream) == ("last", False)
    changed = read.for_engine(read.model, 7)
    assert changed.count(b'"model"') >= 1
    once = json.loads(changed, object_pairs_hook=lambda found: [name for name, _ in found])
    if isinstance(once, list):
        assert len(once) == len(set(once))
    again = Ask(endpoint, changed)
    assert (again.model, again.texts, again.stream) == (read.model, read.texts, read.stream)
