"""The verdict of the overview: whatever is not right is said, the worst first, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.web.shown import pool_words
from controlplane.web.shown.overview_words import NAMED_MAX, Seen, named, sentence, state_of, troubles

NAMES = st.text(alphabet="abcdefgh", min_size=1, max_size=4)
SEEN = st.builds(
    Seen,
    pools=st.dictionaries(NAMES, st.sampled_from(pool_words.STATES), max_size=5),
    out=st.integers(0, 3),
    firing=st.dictionaries(st.sampled_from(["critical", "warning", "info"]), st.integers(1, 9)),
    targets=st.integers(0, 9),
    refusing=st.lists(NAMES, max_size=5),
    lost=st.lists(NAMES, max_size=5),
    behind=st.integers(0, 9),
    metrics_missing=st.booleans(),
    config_damaged=st.booleans(),
)


@given(SEEN)
def test_the_state_is_that_of_the_worst_trouble(seen: Seen) -> None:
    found = troubles(seen)
    states = [trouble.state for trouble in found]
    assert states == sorted(states, key=["bad", "wait"].index)
    nothing = "good" if seen.pools else "none"
    assert state_of(seen, found) == (states[0] if states else nothing)


@given(SEEN)
def test_the_sentence_says_every_trouble(seen: Seen) -> None:
    found = troubles(seen)
    said = sentence(seen, found)
    assert said
    assert all(trouble.text in said for trouble in found)


@given(SEEN)
def test_each_pool_with_trouble_is_counted_in_one_of_them(seen: Seen) -> None:
    troubled = [name for name, state in seen.pools.items() if state not in ("ok", "empty")]
    about = [trouble for trouble in troubles(seen) if trouble.about == "pools"]
    assert bool(about) == bool(troubled)
    assert len(about) == len({seen.pools[name] for name in troubled})


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (Seen(), "there is no pool yet, so nothing is served"),
        (
            Seen(pools={"a": "ok", "b": "empty"}, targets=3),
            "2 pools without trouble, no incident fires, 3 targets run the newest configuration",
        ),
        (
            Seen(pools={"a": "ok"}, targets=1, out=2),
            "1 pool without trouble, no incident fires, 1 target runs the newest configuration, "
            "2 engines kept out of service",
        ),
        (Seen(pools={"a": "down", "b": "missed", "c": "tight"}), "down: a; promises missed: b; tight: c"),
        (Seen(pools={"a": "stale", "b": "unmeasured"}), "stale readings: a; not measured: b"),
        (Seen(pools={"a": "ok"}, firing={"warning": 2, "critical": 1}), "1 critical incident; 2 warnings"),
        (
            Seen(pools={"a": "ok"}, lost=["edge-1"], refusing=["edge-2"]),
            "configuration refused by edge-2; nothing heard of edge-1",
        ),
        (Seen(pools={"a": "ok"}, behind=1), "1 target has yet to apply the newest configuration"),
        (Seen(pools={"a": "ok"}, metrics_missing=True), "the metrics store does not answer"),
        (Seen(config_damaged=True), "the newest configuration cannot be read"),
    ],
)
def test_it_says_what_a_person_asks_for(seen: Seen, said: str) -> None:
    assert sentence(seen, troubles(seen)) == said


def test_what_is_merely_told_is_no_trouble() -> None:
    seen = Seen(pools={"a": "ok"}, firing={"info": 3})
    assert state_of(seen, troubles(seen)) == "good"


def test_of_many_names_the_first_are_said() -> None:
    names = [f"pool-{number}" for number in range(NAMED_MAX + 2)]
    assert named(names) == "pool-0, pool-1, pool-2 and 2 more"
    assert named(names[:NAMED_MAX]) == "pool-0, pool-1, pool-2"
