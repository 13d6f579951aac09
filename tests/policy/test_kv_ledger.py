"""What may be reserved of an engine, by what its page shows and what is reserved: never over, never for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from policy.kv import admissible_tokens
from policy.kv_ledger import EngineLook, KvRoom, others_tokens, room_tokens
from wire.snapshot import Engine, Pool

ENGINE = Engine("http://127.0.0.1:8000", "vllm", "main", "llama", kv_capacity_tokens=100_000)
POOL = Pool("acme/small-8b", kv_admit_permille=900)
NOTHING = EngineLook(
    0, running=0, waiting=0, kv_used_tokens=0, kv_capacity_tokens=200_000, own_reserved_tokens=0, own_sequences=0
)
POLICIES = ["close", "hold", "open"]

tokens = st.integers(0, 10**6)
sequences = st.integers(0, 500)
looks = st.builds(
    EngineLook,
    at_ms=st.just(0),
    running=st.none() | sequences,
    waiting=st.none() | sequences,
    kv_used_tokens=st.none() | tokens,
    kv_capacity_tokens=st.none() | tokens,
    own_reserved_tokens=tokens,
    own_sequences=sequences,
)
pools = st.builds(
    Pool, model=st.just("m"), kv_admit_permille=st.integers(0, 1000), stale_telemetry=st.sampled_from(POLICIES)
)
engines = st.builds(replace, st.just(ENGINE), kv_capacity_tokens=st.just(UNSET) | tokens)


def room(look=NOTHING, reserved=0, pool=POOL, engine=ENGINE, stale=False, gateways=1):
    return room_tokens(pool, engine, reserved, look, stale=stale, gateways=gateways)


def test_what_an_engine_tells_of_its_capacity_goes_before_what_is_configured():
    assert room(reserved=30_000) == KvRoom(150_000, 180_000)
    assert room(NOTHING._replace(kv_capacity_tokens=None), 30_000) == KvRoom(60_000, 90_000)
    assert room(NOTHING._replace(kv_capacity_tokens=0), 30_000) == KvRoom(60_000, 90_000), "none was measured yet"
    assert room(None, 30_000) == KvRoom(60_000, 90_000)
    assert room(None, engine=replace(ENGINE, kv_capacity_tokens=UNSET)) == KvRoom(None, None)


def test_what_others_use_is_not_reserved_again():
    by_others = NOTHING._replace(running=9, kv_used_tokens=180_000 - 20_000)
    assert room(by_others) == KvRoom(20_000, 180_000, 160_000)
    assert room(by_others._replace(kv_used_tokens=200_000)).tokens == 0, "and a whole engine is full, not below that"


def test_own_requests_that_have_not_grown_yet_are_not_taken_for_others():
    alone = NOTHING._replace(running=4, waiting=1, kv_used_tokens=80_000, own_reserved_tokens=100_000, own_sequences=5)
    assert room(alone, 100_000) == KvRoom(80_000, 180_000)
    just_ended = alone._replace(own_reserved_tokens=0, own_sequences=0)
    assert room(just_ended, 0).others_tokens == 80_000, "until the next look shows that they have"


def test_of_what_is_used_others_hold_their_share_by_sequences():
    mixed = NOTHING._replace(running=10, kv_used_tokens=50_000, own_reserved_tokens=60_000, own_sequences=6)
    assert others_tokens(mixed) == 20_000
    assert others_tokens(mixed._replace(own_reserved_tokens=10_000)) == 40_000, "no more of it can be ours"


def test_sequences_that_a_page_does_not_tell_are_not_guessed():
    silent = NOTHING._replace(
        running=None, waiting=None, kv_used_tokens=50_000, own_reserved_tokens=40_000, own_sequences=1
    )
    assert others_tokens(silent) == 10_000
    assert others_tokens(silent._replace(kv_used_tokens=None)) == 0


@given(looks)
def test_others_hold_no_more_than_is_used_and_no_less_than_can_be_ours(look):
    used, others = look.kv_used_tokens or 0, others_tokens(look)
    assert 0 <= others <= used
    foreign = look.running is None or look.running + (look.waiting or 0) > look.own_sequences
    assert others >= used - look.own_reserved_tokens or not foreign


@given(pools, engines, looks | st.none(), tokens, st.booleans(), st.integers(1, 20))
def test_never_more_than_what_an_engine_may_hold(pool, engine, look, reserved, stale, gateways):
    found = room(look, reserved, pool, engine, stale, gateways)
    assert (found.admissible_tokens is None) == (
        engine.kv_capacity_tokens is UNSET and (look is None or not look.kv_capacity_tokens)
    )
    if found.tokens is None:
        assert found.admissible_tokens is None
    elif found.tokens > 0:
        assert found.admissible_tokens is not None
        assert reserved + found.tokens + found.others_tokens <= found.admissible_tokens


@given(pools, engines, looks, st.integers(1, 20))
def test_no_wrong_number_blocks_an_engine_that_runs_nothing(pool, engine, look, gateways):
    """Whatever its page says of its use: as vLLM's did (its issue 20302)."""
    idle = look._replace(running=0, waiting=0, own_reserved_tokens=0)
    found = room(idle, 0, pool, engine, gateways=gateways)
    assert found.tokens == found.admissible_tokens


@given(pools, engines, looks, tokens)
def test_no_page_blocks_a_gateway_by_its_own_requests(pool, engine, look, reserved):
    alone = look._replace(running=look.own_sequences, waiting=0, own_reserved_tokens=reserved)
    found = room(alone, reserved, pool, engine)
    assert found.admissible_tokens is None or found.tokens == max(0, found.admissible_tokens - reserved)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("close", KvRoom(0, 180_000, closed=True)),
        ("hold", KvRoom(180_000 - 30_000 - 100_000, 180_000, 100_000)),
        ("open", KvRoom(90_000 - 30_000, 90_000)),
    ],
)
def test_what_a_stale_look_means_is_the_pools_to_say(policy, expected):
    look = NOTHING._replace(running=9, kv_used_tokens=100_000)
    pool = replace(POOL, stale_telemetry=policy)
    assert room(look, 30_000, pool, stale=True) == expected
    assert room(look, 30_000, pool) == room(look, 30_000), "a fresh one is taken in every case"


def test_open_goes_by_what_was_told_last_where_no_capacity_is_configured():
    look = NOTHING._replace(running=9, kv_used_tokens=100_000)
    pool, engine = replace(POOL, stale_telemetry="open"), replace(ENGINE, kv_capacity_tokens=UNSET)
    assert room(look, 30_000, pool, engine, stale=True) == KvRoom(150_000, 180_000)


def test_before_any_look_only_close_keeps_an_engine_shut():
    assert room(None, 0, replace(POOL, stale_telemetry="close"), stale=True) == KvRoom(0, 90_000, closed=True)
    for policy in ("hold", "open"):
        assert room(None, 0, replace(POOL, stale_telemetry=policy), stale=True) == KvRoom(90_000, 90_000)


class Shared:
    """One engine of 1,000 tokens and gateways that see of each other only what is in use."""

    def __init__(self, gateways: int) -> None:
        self.reserved = [0] * gateways
        self.sequences = [0] * gateways
        self.looks: list[EngineLook] = []
        self.engine = replace(ENGINE, kv_capacity_tokens=1_000)
        self.look()

    def look(self) -> None:
        """All requests have grown to what they reserved."""
        self.looks = [
            EngineLook(
                0, sum(self.sequences), 0, min(1_000, sum(self.reserved)), None, self.reserved[one], self.sequences[one]
            )
            for one in range(len(self.reserved))
        ]

    def ask(self, gateway: int, wanted: int) -> None:
        found = room(self.looks[gateway], self.reserved[gateway], POOL, self.engine, gateways=len(self.reserved))
        assert found.tokens is not None
        if wanted <= found.tokens:
            self.reserved[gateway] += wanted
            self.sequences[gateway] += 1


asked = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 900)) | st.none(), max_size=60)


@given(asked)
def test_alone_a_gateway_never_reserves_more_than_the_engine_may_hold(steps):
    shared = Shared(1)
    for step in steps:
        if step is None:
            shared.look()
        else:
            shared.ask(0, step[1])
        assert sum(shared.reserved) <= admissible_tokens(1_000, 900)


@given(asked)
def test_gateways_that_race_for_one_look_pass_the_bound_by_one_request_each_at_most(steps):
    shared = Shared(4)
    for step in steps:
        if step is None:
            shared.look()
        else:
            before = list(shared.reserved)
            shared.ask(*step)
            taken_since_look = [now - look.own_reserved_tokens for now, look in zip(before, shared.looks, strict=True)]
            bound = admissible_tokens(1_000, 900)
            if shared.reserved != before and taken_since_look[step[0]] > 0:
                # Not the first by this look: within this gateway's part of what it showed.
                shown = bound - sum(look.own_reserved_tokens for look in shared.looks)
                assert taken_since_look[step[0]] + step[1] <= max(0, shown) // 4
