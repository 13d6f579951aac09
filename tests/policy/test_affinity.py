"""Leading blocks of prompts, and who has read them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.affinity import PrefixTable, leading_blocks


def blocks(*texts: str) -> list[int]:
    return leading_blocks(texts, block_characters=4, most=3)


def test_only_whole_blocks_count_and_no_more_than_the_first_ones():
    assert blocks("abc") == []
    assert len(blocks("abcd")) == 1
    assert len(blocks("abcdefg")) == 1
    assert blocks("abcdefghijkl") == blocks("abcdefghijklmnop")
    assert len(blocks("abcdefghijkl")) == 3


def test_the_same_block_after_another_beginning_is_another():
    assert blocks("abcdwxyz")[1] != blocks("efghwxyz")[1]


def test_where_texts_end_counts():
    assert blocks("ab", "cdef") != blocks("abc", "def")


@given(st.text("ab", max_size=30), st.text("ab", max_size=30))
def test_texts_share_the_blocks_of_their_common_beginning(one: str, other: str):
    common = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        common += 1
    shared = sum(left == right for left, right in zip(blocks(one), blocks(other), strict=False))
    assert shared == min(common // 4, 3)


@given(st.lists(st.text("ab", max_size=10), max_size=6))
def test_texts_in_one_are_cut_as_the_whole(texts: list[str]):
    assert blocks(*texts) == blocks("\0".join(texts))


def test_the_longest_known_beginning_is_found():
    table = PrefixTable(100)
    table.put([1, 2, 3], "e0")
    table.put([1, 2, 9], "e1")
    assert table.find([1, 2, 3, 4]) == "e0"
    assert table.find([1, 2, 8]) == "e1"
    assert table.find([7]) is None


def test_it_holds_no_more_than_it_may_and_beginnings_longest():
    table = PrefixTable(3)
    table.put([1, 2, 3], "e0")
    table.put([1, 4], "e1")
    assert len(table) == 3
    assert (table.find([1]), table.find([1, 4])) == ("e1", "e1")
    assert table.find([2]) == "e0"
    assert table.find([3]) is None


def test_a_table_of_no_size_knows_nothing():
    table = PrefixTable(0)
    table.put([1], "e0")
    assert (len(table), table.find([1])) == (0, None)
