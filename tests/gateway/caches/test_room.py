"""Memory of kept answers: bounded whatever comes, and given back whatever ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.caches.exact import ExactAnswers, ShelfName
from gateway.caches.room import Answer, Recorder, Room
from wire.snapshot import ExactCache

ALPHA, BETA = ShelfName("alpha", "faq"), ShelfName("beta", "faq")
KEYS = [bytes([number]) for number in range(6)]


def answer(size: int = 10, at_ms: int = 0) -> Answer:
    return Answer(b"x" * size, False, at_ms)


acts = st.lists(
    st.tuples(st.sampled_from([ALPHA, BETA]), st.sampled_from(KEYS), st.integers(0, 3_000), st.booleans()), max_size=40
)


@given(acts, st.integers(0, 8_000), st.integers(1, 4))
def test_no_more_is_kept_than_there_is_room_for(
    acts: list[tuple[ShelfName, bytes, int, bool]], limit_bytes: int, max_entries: int
) -> None:
    room, policy = Room(limit_bytes), ExactCache(max_entries=max_entries)
    exact = ExactAnswers(room)
    kept: dict[tuple[ShelfName, bytes], Answer] = {}
    for shelf, key, size, read in acts:
        if read:
            found = exact.get(shelf, key, policy, 0, None)
            assert found is None or found.answer is kept[shelf, key]
        else:
            kept[shelf, key] = answer(size)
            exact.put(shelf, key, kept[shelf, key], policy)
        found_all = [exact.get(name, each, policy, 0, None) for name, each in kept]
        assert room.used_bytes == sum(one.size_bytes for one in found_all if one) <= limit_bytes
        assert len(room) == len(exact) == sum(one is not None for one in found_all)
        for name in (ALPHA, BETA):
            assert sum(exact.get(name, each, policy, 0, None) is not None for each in KEYS) <= max_entries
    exact.keep_only(lambda shelf: shelf == BETA)
    assert all(exact.get(ALPHA, each, policy, 0, None) is None for each in KEYS)
    exact.keep_only(lambda shelf: False)
    assert (room.used_bytes, len(room), len(exact)) == (0, 0, 0)


def test_what_was_used_last_goes_last() -> None:
    room = Room(2 * (600 + 10))
    exact, policy = ExactAnswers(room), ExactCache()
    exact.put(ALPHA, b"1", answer(), policy)
    exact.put(BETA, b"2", answer(), policy)
    assert exact.get(ALPHA, b"1", policy, 0, None)
    exact.put(BETA, b"3", answer(), policy)
    assert exact.get(BETA, b"2", policy, 0, None) is None
    assert exact.get(ALPHA, b"1", policy, 0, None)


def test_an_answer_is_given_until_its_time_and_its_askers() -> None:
    room = Room(10_000)
    exact, policy = ExactAnswers(room), ExactCache(ttl_ms=1_000)
    exact.put(ALPHA, b"1", answer(at_ms=5_000), policy)
    assert exact.get(ALPHA, b"1", policy, 5_999, None)
    assert exact.get(ALPHA, b"1", policy, 5_500, 499) is None
    assert exact.get(ALPHA, b"1", policy, 5_500, 500)
    assert exact.get(ALPHA, b"1", ExactCache(ttl_ms=100), 5_100, None) is None
    # What is too old has gone; a longer time does not bring it back.
    assert exact.get(ALPHA, b"1", policy, 5_100, None) is None
    assert room.used_bytes == 0


def test_what_is_wrong_is_found_by_its_answer_wherever_it_is_kept() -> None:
    room, told = Room(10_000), answer()
    exact, policy = ExactAnswers(room), ExactCache()
    exact.put(ALPHA, b"1", told, policy)
    exact.put(BETA, b"1", told, policy)
    for kept in list(told.kept):
        assert room.drop(kept)
        assert not room.drop(kept)
    assert (told.kept, len(exact)) == ([], 0)


@given(st.lists(st.binary(max_size=300), max_size=30), st.integers(0, 2_000), st.integers(0, 4_000))
def test_a_recording_is_whole_or_nothing_and_gives_its_memory_back(
    parts: list[bytes], answer_bytes_max: int, room_bytes: int
) -> None:
    room = Room(room_bytes)
    recorder = Recorder(room, answer_bytes_max)
    for part in parts:
        recorder.hear(part)
    body = recorder.end()
    size = sum(map(len, parts))
    assert body == (b"".join(parts) if parts and size <= min(answer_bytes_max, room_bytes // 4) else None)
    # All of it is there for the next one, whatever became of this one.
    assert room.may_record(room_bytes // 4)
    assert not room.may_record(1)


def test_recordings_share_a_quarter_of_the_room() -> None:
    room = Room(4_000)
    first, second = Recorder(room, 1_000), Recorder(room, 1_000)
    first.hear(b"x" * 600)
    second.hear(b"y" * 600)
    first.hear(b"x" * 400)
    assert (first.end(), second.end()) == (b"x" * 1_000, None)
