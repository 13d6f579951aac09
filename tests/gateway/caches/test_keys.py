"""What makes two requests the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.caches.keys import Wish, key_of
from policy.asks.body import fields_of

names = st.text(min_size=1, max_size=5)
bodies = st.dictionaries(
    names, st.one_of(st.integers(0, 99), st.text(max_size=9), st.none(), st.booleans()), max_size=5
)


def key(body: dict[str, Any], *context: bytes, **instead: bytes | None) -> bytes:
    return key_of(fields_of(msgspec.json.encode(body)), context, instead)


@given(bodies, bodies)
def test_two_bodies_have_one_key_only_where_all_their_fields_are_alike(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert (key(one) == key(other)) == (
        msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
    )


@given(bodies, st.lists(st.binary(max_size=4), max_size=3), st.lists(st.binary(max_size=4), max_size=3))
def test_what_stands_beside_the_body_is_in_the_key(body: dict[str, Any], one: list[bytes], other: list[bytes]) -> None:
    assert (key(body, *one) == key(body, *other)) == (one == other)


def test_the_order_of_fields_is_not_in_the_key() -> None:
    assert key({"a": 1, "b": 2}) == key({"b": 2, "a": 1})


def test_a_field_may_count_by_another_value() -> None:
    assert key({"model": "alias", "n": 1}, model=b"real") == key({"model": "real", "n": 1}, model=b"real")
    assert key({"a": 1, "stream": False}, stream=None) == key({"a": 1}, stream=None) != key({"a": 2})
    assert key({"model": "alias"}) != key({"model": "real"})


@pytest.mark.parametrize(
    ("header", "wish"),
    [
        (None, Wish()),
        (b"", Wish()),
        (b"no-cache", Wish(read=False)),
        (b"Private, NO-STORE", Wish(read=False, write=False)),
        (b"max-age=60", Wish(max_age_ms=60_000)),
        (b'max-stale=9, max-age="0"', Wish(max_age_ms=0)),
        (b"max-age=-1", Wish()),
        (b"x-no-cache", Wish()),
        (b"s-max-age=5", Wish()),
        (b"\xff\x00,,=", Wish()),
    ],
)
def test_cache_control_says_what_a_client_wishes(header: bytes | None, wish: Wish) -> None:
    assert Wish.of(header) == wish
