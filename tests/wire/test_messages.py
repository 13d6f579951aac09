from __future__ import annotations

import msgspec
import pytest

from wire import problems
from wire.messages import UNREADABLE, Ack, PatchEvent, PeersEvent, SnapshotEvent, StreamEvent, decode_sse, encode_sse
from wire.problems import MAX_PROBLEMS, Problem, type_problems
from wire.sse import SseParser

HASH = "ab" * 32
EVENTS: dict[str, StreamEvent] = {
    "snapshot": SnapshotEvent(3, HASH, {"a": "line\nend\r\u2028"}),
    "patch": PatchEvent(3, 4, HASH, {"a": None}),
    "peers": PeersEvent(2),
}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_survives_the_stream(name):
    (event,) = SseParser(10_000).feed(encode_sse(name, EVENTS[name]))
    assert decode_sse(event.name, event.data) == EVENTS[name]


def test_an_event_of_a_later_version_is_skipped():
    assert decode_sse("moon_phase", b"full") is None


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"live_gateways":0}', b'{"live_gateways":"2"}', b"\xff"])
def test_data_of_another_form_is_refused(data):
    with pytest.raises(UNREADABLE):
        decode_sse("peers", data)


def test_a_patch_says_from_on_the_wire():
    assert msgspec.json.decode(msgspec.json.encode(EVENTS["patch"]))["from"] == 3


@pytest.mark.parametrize(
    "body",
    [
        {"revision": 1, "hash": HASH, "applied_at": 5},
        {"revision": 1, "error": [{"path": "/", "rule": "type", "message": "no"}]},
    ],
)
def test_an_ack_says_applied_or_why_not(body):
    assert msgspec.to_builtins(msgspec.convert(body, Ack)) == body


@pytest.mark.parametrize(
    "body",
    [
        {"revision": 1},
        {"revision": 1, "hash": HASH},
        {"revision": 1, "applied_at": 5},
        {"revision": 1, "error": []},
        {"revision": 1, "hash": HASH, "applied_at": 5, "error": [{"path": "/", "rule": "r", "message": "m"}]},
        {"revision": -1, "hash": HASH, "applied_at": 5},
        {"revision": 1, "hash": HASH.upper(), "applied_at": 5},
        {"revision": 1, "hash": HASH, "applied_at": 5, "colour": "green"},
    ],
)
def test_an_ack_of_another_form_is_refused(body):
    assert type_problems(body, Ack)


def test_an_unknown_field_of_a_strict_message_is_named():
    body = {"revision": 1, "hash": HASH, "applied_at": 5, "colour": "green"}
    assert type_problems(body, Ack) == [Problem("/colour", "unknown", "no such field")]


def test_a_bad_entry_of_a_list_is_named_by_its_place():
    body = {"revision": 1, "error": [{"path": "/", "rule": "r", "message": "m"}, {"path": "/", "rule": 5}]}
    assert [problem.path for problem in type_problems(body, Ack)] == ["/error/1/rule", "/error/1/message"]


def test_a_body_of_many_faults_is_not_searched_to_its_end(monkeypatch):
    looks = 0
    refusal = problems._refusal

    def counted(value, kind):
        nonlocal looks
        looks += 1
        return refusal(value, kind)

    monkeypatch.setattr(problems, "_refusal", counted)
    body = {"revision": 1, "error": [{"path": 1, "rule": 2, "message": 3}] * 50_000}
    found = type_problems(body, Ack)
    assert len(found) == MAX_PROBLEMS
    assert found[-1].path == "/error/33/path"
    assert looks < 10 * MAX_PROBLEMS


@pytest.mark.parametrize(
    "body",
    [
        {"revision": 1, "x" * 100_000: 1},
        {"revision": 1, "hash": HASH, "applied_at": 5, "x" * 100_000: 1},
    ],
)
def test_what_a_body_says_is_quoted_in_part(body):
    found = type_problems(body, Ack)
    assert found
    assert all(len(problem.path) <= 500 and len(problem.message) <= 500 for problem in found)
    assert any(problem.path.endswith("x…") for problem in found)
