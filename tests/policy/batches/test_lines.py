"""Whatever stands in a line, it is a good one or is refused by name."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.batches.lines import ENDPOINTS, BrokenLine, read_line

CHAT = ENDPOINTS[0]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["model", "stream"]), inner),
    max_leaves=4,
)


def line(**changes: Any) -> bytes:
    own = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {"model": "m"}}
    return json.dumps({**own, **changes}).encode()


@given(custom_id=values, method=st.just("POST") | values, url=st.just(CHAT) | values, body=values)
def test_fields_of_any_kind(custom_id: Any, method: Any, url: Any, body: Any) -> None:
    text = line(custom_id=custom_id, method=method, url=url, body=body)
    good = (
        isinstance(custom_id, str)
        and len(custom_id) >= 1
        and "\0" not in custom_id
        and (method, url) == ("POST", CHAT)
        and isinstance(body, dict)
        and isinstance(body.get("model"), str)
        and bool(body["model"])
        and "\0" not in body["model"]
        and not body.get("stream")
    )
    with nullcontext() if good else pytest.raises(BrokenLine):
        read = read_line(text, CHAT)
        assert (read.custom_id, json.loads(read.body), read.model) == (custom_id, body, body["model"])


@given(text=st.binary(max_size=40))
def test_bytes_of_any_kind_are_no_line(text: bytes) -> None:
    with pytest.raises(BrokenLine):
        read_line(text, CHAT)


def test_a_body_is_taken_byte_for_byte() -> None:
    body = b'{ "model":"m",  "n": 1.0, "x": "\\u00e9" }'
    text = b'{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": ' + body + b"}"
    assert read_line(text, "/v1/completions").body.strip() == body


def test_it_says_whose_line_it_is_where_that_can_be_read() -> None:
    with pytest.raises(BrokenLine) as broken:
        read_line(line(method="PUT"), CHAT)
    assert (broken.value.code, broken.value.custom_id) == ("invalid_method", "a")
