from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from wire.engine_pages.name_pattern import any_of

NAMES = st.text("ab_:", min_size=1, max_size=6)


@given(st.lists(NAMES, min_size=1, max_size=8), NAMES)
def test_it_matches_the_words_and_no_other(words, other):
    assert bool(re.fullmatch(any_of(words), other.encode())) == (other in words)


@given(st.lists(NAMES, min_size=1, max_size=8), NAMES, st.text("ab_:", max_size=6))
def test_a_star_matches_whatever_begins_so(words, prefix, rest):
    pattern = any_of([*words, f"{prefix}*"])
    assert re.fullmatch(pattern, (prefix + rest).encode())
    assert all(re.fullmatch(pattern, word.encode()) for word in words)
