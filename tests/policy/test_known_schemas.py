from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.known_schemas import HOUR_MS, MOST_DISTINCT, MostUsed, Seen, UsedLately

DIGESTS = st.sampled_from([bytes([number]) for number in range(12)])


@given(uses=st.lists(st.tuples(DIGESTS, st.integers(0, HOUR_MS // 3)), max_size=60), limit=st.integers(1, 8))
def test_a_schema_is_let_in_while_fewer_than_the_limit_were_used_within_the_hour(
    uses: list[tuple[bytes, int]], limit: int
):
    lately, last, now_ms = UsedLately(), dict[bytes, int](), 0
    for digest, later_ms in uses:
        now_ms += later_ms
        known = {each for each, at_ms in last.items() if at_ms > now_ms - HOUR_MS}
        wait_ms = lately.use(digest, limit, now_ms)
        assert (wait_ms == 0) == (digest in known or len(known) < limit)
        if wait_ms:
            assert now_ms + wait_ms == min(last[each] for each in known) + HOUR_MS
        else:
            last[digest] = now_ms
        assert len(lately) <= limit


def test_a_tenants_schemas_are_bounded_whatever_its_limit():
    lately = UsedLately()
    for number in range(MOST_DISTINCT + 10):
        assert lately.use(number.to_bytes(4, "big"), 10**9, number) == 0
    assert len(lately) == MOST_DISTINCT


@given(st.lists(DIGESTS, max_size=200), st.integers(1, 6))
def test_whatever_makes_up_more_than_its_share_is_among_the_most_used(uses: list[bytes], capacity: int):
    most_used: MostUsed[bytes] = MostUsed(capacity)
    for digest in uses:
        most_used.use(digest, digest)
    kept = most_used.values()
    assert len(kept) == len(set(kept)) <= capacity
    assert {digest for digest in uses if uses.count(digest) > len(uses) / capacity} <= set(kept)


def test_the_most_used_come_first_with_their_latest_value():
    most_used: MostUsed[str] = MostUsed(2)
    for digest, value in ((b"a", "a1"), (b"b", "b1"), (b"a", "a2")):
        most_used.use(digest, value)
    assert most_used.values() == ["a2", "b1"]
    most_used.use(b"c", "c1")
    assert set(most_used.values()) == {"a2", "c1"}


def test_nothing_is_kept_where_nothing_is_to_be():
    most_used: MostUsed[str] = MostUsed(0)
    most_used.use(b"a", "a")
    assert most_used.values() == []


def test_what_was_seen_long_ago_is_new_again():
    seen = Seen(2)
    assert [seen.see(digest) for digest in (b"a", b"b", b"a", b"c", b"a", b"b")] == [
        False, False, True, False, True, False,
    ]  # fmt: skip
