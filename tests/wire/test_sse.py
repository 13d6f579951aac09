from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.sse import EventTooLarge, ServerSentEvent, SseParser

STREAM = (
    b": ping\n\nevent: snapshot\r\ndata: {}\r\n\r\nid: 7\nretry: 10\n\ndata:one\ndata: two\n\n"
    b"event: lost\n\ndata\n\nevent: peers\ndata: 3\n\nevent: cut\ndata: 4\n"
)
EVENTS = [
    ServerSentEvent("snapshot", b"{}"),
    ServerSentEvent("message", b"one\ntwo"),
    ServerSentEvent("message", b""),
    ServerSentEvent("peers", b"3"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20).map(sorted))
def test_events_are_the_same_however_the_stream_is_cut(cuts):
    parser = SseParser(1000)
    bounds = [0, *cuts, len(STREAM)]
    found = [event for start, end in pairwise(bounds) for event in parser.feed(STREAM[start:end])]
    assert found == EVENTS


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 100, b"data: xxxxxxxxx\n" * 20, b": " + b"c" * 100])
def test_an_event_longer_than_the_bound_is_refused(stream):
    with pytest.raises(EventTooLarge):
        list(SseParser(64).feed(stream))


def test_many_events_may_be_longer_than_the_bound_together():
    assert len(list(SseParser(64).feed(b"data: 0123456789\n\n" * 50))) == 50
