"""How a route and the engines of two sides follow the share that has moved."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from controlplane.rollouts.sides import Pair, base_of, in_service, moved, wanted_in_service
from tests.controlplane.rollouts.world import HOLDER, engine, route

PAIR = Pair("old", "new")
SHARES = st.integers(0, 1000)


@st.composite
def routes(draw: st.DrawFn) -> dict[str, Any]:
    """Any route that leads to the old pool: by weight, as a fallback, or as the first pool of a cascade."""
    weight = draw(st.integers(0, 1000))
    pools = {name: share for name, share in (("old", weight), ("other", 1000 - weight)) if share}
    names = draw(st.lists(st.sampled_from(["old", "other", "third"]), unique=True))
    fallbacks = {name: draw(st.integers(0, 5)) for name in names} or None
    cascade = draw(st.sampled_from([None, {"pool": "old"}, {"pool": "third"}])) if not weight else None
    made = route("r", pools, fallbacks, cascade)
    assume(base_of(made, "old") is not None)
    return made


def at(given_route: dict[str, Any], base: Any, share: int, *, joined: bool = True) -> dict[str, Any]:
    return {**given_route, **moved(given_route, base, PAIR, share, joined=joined)}


@given(routes(), st.lists(SHARES, max_size=5))
def test_weights_always_sum_to_a_thousand_and_the_way_back_leads_to_the_same_route(
    made: dict[str, Any], shares: list[int]
) -> None:
    base, now = base_of(made, "old"), made
    for share in shares:
        now = at(now, base, share)
        assert sum(now["pools"].values()) == 1000
        # Decided again, as after a kill, there is nothing to do.
        assert at(now, base, share) == now
    assert at(now, base, 0, joined=False) == made


@given(routes())
def test_at_the_end_the_new_pool_stands_wherever_the_old_one_stood(made: dict[str, Any]) -> None:
    base = base_of(made, "old")
    end = at(at(made, base, 300), base, 1000, joined=False)
    renamed = {
        field: {("new" if name == "old" else name): order for name, order in made[field].items()}
        if made[field]
        else None
        for field in ("pools", "fallbacks")
    }
    assert {field: end[field] for field in renamed} == renamed
    assert base_of(end, "old") is None


@given(st.integers(1, 50), st.integers(1, 50), SHARES)
def test_each_side_has_its_part_of_the_engines_rounded_up(old: int, new: int, share: int) -> None:
    old_wanted, new_wanted = wanted_in_service(old, new, share)
    assert old_wanted * 1000 >= old * (1000 - share) > (old_wanted - 1) * 1000
    assert new_wanted * 1000 >= new * share > (new_wanted - 1) * 1000


def test_who_serves_already_and_can_goes_before_others() -> None:
    side = [
        engine("a", "p", cordoned=True),
        engine("b", "p", held_out_by=HOLDER),
        engine("c", "p"),
        engine("d", "p", up=False),
        engine("e", "p", held_out_by="rollout 7"),
    ]
    assert in_service(side, 2, HOLDER) == ("c", "b")
