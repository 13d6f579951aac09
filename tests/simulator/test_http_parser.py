"""Bytes into requests: however they are cut, and what is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.http_parser import MAX_HEAD_BYTES, BadHttp, HttpRequest, RequestParser

MAX_BODY_BYTES = 1000
SIZED = b"POST /v1/completions?a=b HTTP/1.1\r\nHost: x\r\nX-Request-Id:  7 \r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"POST /c HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3;a=b\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\n"
BARE = b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"


def requests_in(data: bytes, cuts: list[int]) -> list[HttpRequest]:
    parser = RequestParser(MAX_BODY_BYTES)
    found = []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        parser.feed(data[start:end])
        while (request := parser.next_request()) is not None:
            found.append(request)
    assert parser.buffered_bytes == 0
    return found


@given(st.lists(st.sampled_from([SIZED, CHUNKED, BARE]), min_size=1, max_size=5), st.lists(st.integers(0, 10_000)))
def test_requests_are_the_same_however_their_bytes_are_cut(parts: list[bytes], cuts: list[int]) -> None:
    expected = [request for part in parts for request in requests_in(part, [])]
    assert len(expected) == len(parts)
    assert requests_in(b"".join(parts), cuts) == expected


def test_it_reads_a_sized_and_a_chunked_body() -> None:
    sized, chunked, bare = requests_in(SIZED + CHUNKED + BARE, [])
    assert (sized.method, sized.path, sized.body) == (b"POST", b"/v1/completions", b"hello")
    assert sized.headers[b"x-request-id"] == b"7"
    assert chunked.body == b"abc0123456789"
    assert (sized.keep_alive, bare.keep_alive, bare.body) == (True, False, b"")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nname : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na: b\r\n folded\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1001\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3E9\r\n", 413),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0x3\r\nabc\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\ntrailer: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 1100, 400),
        (b"GET / HTTP/1.1\r\na: " + b"x" * MAX_HEAD_BYTES, 431),
    ],
)
def test_what_is_no_proper_request_is_refused_with_its_status(data: bytes, status: int) -> None:
    parser = RequestParser(MAX_BODY_BYTES)
    parser.feed(data)
    with pytest.raises(BadHttp) as refusal:
        parser.next_request()
    assert refusal.value.status == status


def test_it_says_when_a_client_waits_for_100_continue() -> None:
    parser = RequestParser(MAX_BODY_BYTES)
    parser.feed(b"POST / HTTP/1.1\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
    assert parser.next_request() is None
    assert parser.wants_continue
    parser.feed(b"ab")
    request = parser.next_request()
    assert request is not None
    assert request.body == b"ab"
    assert not parser.wants_continue
