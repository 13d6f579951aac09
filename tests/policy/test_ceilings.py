"""What a class may take of a pool: never the room that is kept for better ones, however much of the pool is gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from policy.ceilings import ceilings
from policy.kv_ledger import KvRoom
from wire.snapshot import Engine, PriorityClass

capacities = st.none() | st.integers(1, 10**6)


def engine(tokens: int | None, cordoned: bool) -> Engine:
    known = UNSET if tokens is None else tokens
    return Engine("http://127.0.0.1:8000", "vllm", "main", "llama", kv_capacity_tokens=known, cordoned=cordoned)


fleets = st.lists(st.builds(engine, capacities, st.booleans()), max_size=8)


def bulk(permille: int) -> dict[str, PriorityClass]:
    return {"gold": PriorityClass(0), "bulk": PriorityClass(5, kv_ceiling_permille=permille)}


def test_the_loss_of_an_engine_is_borne_by_the_class_with_the_ceiling():
    engines = [engine(100, False)] * 3
    assert ceilings(bulk(800), [*engines, engine(100, False)])["bulk"].permille == 800
    # Of 400 tokens 80 are kept for others; of 300 that leaves 220.
    assert ceilings(bulk(800), [*engines, engine(100, True)])["bulk"].permille == 733


@given(fleets)
def test_classes_without_a_ceiling_have_none(engines: list[Engine]) -> None:
    assert ceilings(bulk(1000), engines) == {}


@given(st.integers(1, 999), fleets)
def test_the_room_kept_for_others_is_what_it_was_in_tokens(permille: int, engines: list[Engine]) -> None:
    ceiling = ceilings(bulk(permille), engines)["bulk"]
    known = [each.kv_capacity_tokens for each in engines if each.kv_capacity_tokens is not UNSET]
    mean = sum(known) // len(known) if any(known) else 1
    held = [(each.kv_capacity_tokens or mean, each.cordoned) for each in engines]
    total, serving = sum(tokens for tokens, _ in held), sum(tokens for tokens, cordoned in held if not cordoned)
    assert 0 <= ceiling.permille <= ceiling.configured_permille == permille
    if serving and ceiling.permille:
        kept = serving * (1000 - ceiling.permille) / 1000
        assert 0 <= kept - total * (1000 - permille) / 1000 <= serving / 1000


@given(st.integers(1, 999), st.integers(0, 10**6), st.integers(0, 10**6))
def test_it_takes_of_the_room_only_what_is_above_what_is_kept(permille: int, admissible: int, reserved: int) -> None:
    ceiling = ceilings(bulk(permille), [engine(1, False)])["bulk"]
    room = KvRoom(max(0, admissible - reserved), admissible)
    under = ceiling.under(room)
    assert under.tokens is not None
    assert under.tokens == 0 or reserved + under.tokens <= admissible * permille / 1000 + 1
    assert under.admissible_tokens is not None
    assert under.tokens <= under.admissible_tokens + 1


def test_an_engine_whose_capacity_nobody_knows_bounds_nothing():
    ceiling = ceilings(bulk(500), [engine(None, False)])["bulk"]
    assert ceiling.under(KvRoom(None, None)) == KvRoom(None, None)
