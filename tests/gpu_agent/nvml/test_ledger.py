from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.nvml.ledger import EVENT_SPACING_MS, SAME_XID_MS, Entry, KeptStream, XidLedger

GPU = (0, 5, 0)


def test_what_two_sources_tell_within_moments_is_one_xid():
    ledger = XidLedger()
    assert ledger.add("nvml", GPU, 79, 1000) == Entry(say=True, unsaid=0)
    assert ledger.add("kmsg", GPU, 79, 900) is None
    assert ledger.add("text", GPU, 79, 1200) is None
    assert ledger.total[GPU] == 1


def test_what_one_source_tells_twice_is_two_xids():
    ledger = XidLedger()
    ledger.add("kmsg", GPU, 31, 1000)
    assert ledger.add("kmsg", GPU, 31, 1001) == Entry(say=False, unsaid=0)
    assert ledger.total[GPU] == 2


def test_another_gpu_or_another_xid_is_another_matter():
    ledger = XidLedger()
    ledger.add("nvml", GPU, 79, 1000)
    assert ledger.add("kmsg", (0, 6, 0), 79, 1000) is not None
    assert ledger.add("kmsg", GPU, 48, 1000) is not None


def test_long_after_it_is_a_new_one():
    ledger = XidLedger()
    ledger.add("nvml", GPU, 79, 1000)
    assert ledger.add("kmsg", GPU, 79, 1001 + SAME_XID_MS) is not None


def test_a_storm_gives_one_event_in_a_while_and_the_next_says_how_many_there_were():
    ledger = XidLedger()
    said = [ledger.add("kmsg", GPU, 31, at_ms) for at_ms in range(0, EVENT_SPACING_MS + 100, 100)]
    assert [entry for entry in said if entry and entry.say] == [
        Entry(True, 0),
        Entry(True, EVENT_SPACING_MS // 100 - 1),
    ]


def restarted(ledger):
    return XidLedger(msgspec.json.decode(msgspec.json.encode(ledger.kept()), type=list[KeptStream]))


def test_what_nvml_told_before_a_restart_the_kernel_log_does_not_tell_again():
    ledger = XidLedger()
    ledger.add("nvml", GPU, 79, 1000)
    ledger = restarted(ledger)
    assert ledger.add("kmsg", GPU, 79, 990) is None
    assert ledger.add("text", GPU, 79, 995) is None
    assert ledger.add("kmsg", GPU, 79, 1000 + EVENT_SPACING_MS) == Entry(say=True, unsaid=0)


def test_a_storm_goes_on_over_a_restart():
    ledger = XidLedger()
    for at_ms in range(0, 500, 100):
        ledger.add("nvml", GPU, 31, at_ms)
    ledger = restarted(ledger)
    assert ledger.add("nvml", GPU, 31, EVENT_SPACING_MS) == Entry(say=True, unsaid=4)


@given(st.lists(st.tuples(st.integers(0, 100_000), st.booleans(), st.booleans(), st.integers(0, 200)), max_size=60))
def test_every_occurrence_counts_once_however_many_sources_tell_it(occurrences):
    """Occurrences that lie apart: each told by NVML, the kernel log, or both with some delay."""
    ledger, expected, at_ms = XidLedger(), 0, 0
    for gap_ms, by_nvml, by_kmsg, delay_ms in occurrences:
        at_ms += gap_ms + 2 * SAME_XID_MS
        if by_nvml:
            ledger.add("nvml", GPU, 31, at_ms + delay_ms)
        if by_kmsg:
            ledger.add("kmsg", GPU, 31, at_ms)
        expected += by_nvml or by_kmsg
    assert ledger.total[GPU] == expected


@given(st.lists(st.tuples(st.sampled_from(["nvml", "kmsg", "text"]), st.integers(0, 50)), max_size=200))
def test_a_burst_counts_what_its_most_talkative_source_told(told):
    """Within moments each source tells every occurrence once: there are as many as the one that missed none says."""
    ledger = XidLedger()
    for source, at_ms in told:
        ledger.add(source, GPU, 31, at_ms)
    by_source = [sum(source == each for source, _ in told) for each in ("nvml", "kmsg", "text")]
    assert ledger.total[GPU] == max(by_source, default=0)
