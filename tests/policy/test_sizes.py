"""Size classes: the cut that is offered is the best one, and its numbers are those of the requests."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from policy.sizes import REQUESTS_MIN, WORK_SHARE_MIN_PERMILLE, best_cut, output_bound, requests_missing, share_below
from wire.sketches import bucket_of, lowest_of, middle_of

samples = st.lists(st.integers(1, 40_000), min_size=1, max_size=40)


def sketched(lengths):
    return Counter(map(bucket_of, lengths))


def left_over(lengths):
    """Twice the mean of what is left of the request that is being served."""
    return sum(length**2 for length in lengths) / sum(lengths)


def wait_after(edges, lengths):
    """By the text of the rule, on the lengths themselves; None where a class has too little work."""
    parts = [[each for each in lengths if low <= each < high] for low, high in pairwise((0, *edges, 10**9))]
    if any(sum(part) * 1000 < sum(lengths) * WORK_SHARE_MIN_PERMILLE for part in parts):
        return None
    return sum(len(part) * left_over(part) for part in parts) / len(lengths) / left_over(lengths)


@pytest.mark.parametrize("classes", [2, 3])
@given(lengths=samples)
def test_no_other_cut_has_a_shorter_mean_wait(classes, lengths):
    counts = sketched(lengths)
    as_seen = [max(1, middle_of(bucket)) for bucket in counts.elements()]
    every = combinations(sorted({lowest_of(bucket) for bucket in counts})[1:], classes - 1)
    waits = [wait for edges in every if (wait := wait_after(edges, as_seen)) is not None]
    found = best_cut(counts, classes)
    assert (found is None) == (not waits)
    if found is not None:
        assert found.wait_ratio == pytest.approx(min(waits))
        assert found.wait_ratio <= 1 + 1e-9


@pytest.mark.parametrize("classes", [2, 3])
@given(lengths=samples)
def test_classes_hold_every_request_once(classes, lengths):
    counts = sketched(lengths)
    found = best_cut(counts, classes)
    if found is None:
        reject()
    assert len(found.classes) == classes
    assert found.classes[0].min_prompt_tokens == 0
    assert found.classes[-1].max_prompt_tokens is None
    assert all(one.max_prompt_tokens == other.min_prompt_tokens for one, other in pairwise(found.classes))
    for each in found.classes:
        longest = each.max_prompt_tokens or 10**9
        assert each.requests == sum(each.min_prompt_tokens <= length < longest for length in lengths)
    assert sum(each.prompt_tokens for each in found.classes) == pytest.approx(sum(lengths), rel=0.033, abs=1)
    mean = sum(each.requests * each.wait_ratio for each in found.classes) / len(lengths)
    assert found.wait_ratio == pytest.approx(mean)


def test_chats_and_documents_are_told_apart():
    # Nine chats of 100 to 500 tokens for each document of 32,000.
    found = best_cut(sketched([100, 200, 300, 400, 500, 100, 200, 300, 500, 32_000] * 200), 2)
    assert found is not None
    chats, documents = found.classes
    assert 500 < (chats.max_prompt_tokens or 0) <= 32_000
    assert (chats.requests, documents.requests) == (1800, 200)
    # What a chat waits for is no document any more; a document waits for documents, as nearly all work was.
    assert chats.wait_ratio < 0.02
    assert 1 <= documents.wait_ratio < 1.1
    assert found.wait_ratio < 0.12


@given(length=st.integers(0, 40_000))
def test_requests_of_one_length_are_one_class(length):
    assert best_cut({bucket_of(length): 5000}, 2) is None


def test_no_class_is_too_small_for_engines_of_its_own():
    assert best_cut(sketched([1] * 10 + [10_000]), 2) is None


@pytest.mark.parametrize("classes", [1, 4])
def test_other_numbers_of_classes_are_refused(classes):
    with pytest.raises(ValueError, match="2 or 3"):
        best_cut({1: 1, 99: 1}, classes)


@given(count=st.integers(0, 2 * REQUESTS_MIN))
def test_what_is_missing_is_what_makes_it_enough(count):
    missing = requests_missing({7: count})
    assert count + missing == max(count, REQUESTS_MIN)


@given(lengths=samples)
def test_an_output_bound_leaves_out_some_and_at_most_a_twentieth(lengths):
    counts = sketched(lengths)
    bound = output_bound(counts)
    below = sum(length < bound for length in lengths) if bound is not None else len(lengths)
    assert below * 20 >= len(lengths) * 19
    assert (bound is None) == (below == len(lengths))
    assert share_below(counts, bound) == below * 1000 // len(lengths)


def test_where_nothing_was_seen_there_is_no_bound():
    assert output_bound({}) is None
    assert share_below({}, None) == 1000
