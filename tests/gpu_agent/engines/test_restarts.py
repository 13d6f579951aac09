"""Which looks show another run of an engine's process."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.engines.restarts import follow
from wire.engine_pages.numbers import Reading


def page(started_seconds=None, **counters):
    started = [] if started_seconds is None else [Reading("process_start_time_seconds", (), started_seconds)]
    return started + [Reading(name, (), value) for name, value in counters.items()]


def test_the_first_look_shows_no_restart_but_the_start():
    run, restarted = follow(None, "vllm", page(1_700_000_000.25), 5)
    assert (restarted, run.started_ms) == (False, 1_700_000_000_250)


def test_counters_that_fell_are_another_run_which_began_when_that_was_seen():
    run, _ = follow(None, "sglang", page(generation_tokens_total=7), 1000)
    assert run.started_ms is None
    run, restarted = follow(run, "sglang", page(generation_tokens_total=3), 6000)
    assert (restarted, run.started_ms) == (True, 6000)
    assert follow(run, "sglang", page(generation_tokens_total=3), 9000) == (run, False)


def test_a_gauge_that_fell_is_none():
    run, _ = follow(None, "vllm", page(requests_running=7, kv_cache_usage_ratio=0.9), 0)
    assert not follow(run, "vllm", page(requests_running=0, kv_cache_usage_ratio=0.1), 1)[1]


def test_counters_of_a_model_that_triton_loads_anew_are_none():
    run, _ = follow(None, "triton", page(requests_finished_total=7), 0)
    assert not follow(run, "triton", page(requests_finished_total=0), 1)[1]
    assert follow(replace(run, refused=True), "triton", page(requests_finished_total=0), 1)[1]


def test_nobody_listening_is_a_restart_unless_the_same_process_answers_again():
    run, _ = follow(None, "vllm", page(100.0, prompt_tokens_total=5), 0)
    refused = replace(run, refused=True)
    assert follow(refused, "vllm", page(100.0, prompt_tokens_total=5), 1) == (run, False)
    assert follow(refused, "vllm", page(prompt_tokens_total=9), 1)[1]
    assert follow(refused, "vllm", page(160.0, prompt_tokens_total=9), 1)[1]
    assert follow(refused, "vllm", [], 1)[1]


# A process whose pages are read now and then, not always whole.
steps = st.tuples(
    st.integers(1, 5),
    st.sampled_from(["works", "works", "restarts", "restarts", "unreadable"]),
    st.booleans(),
)


@given(st.booleans(), st.lists(steps, max_size=30))
def test_each_restart_that_looks_can_show_is_counted_once_and_no_other(says_start, course):
    tokens, started, told, shown = 10, 1000.0, 0, 0
    run, _ = follow(None, "vllm", page(started if says_start else None, generation_tokens_total=tokens), 0)
    last_tokens, last_started = tokens, started
    for work, what, was_refused in course:
        restarts = what == "restarts"
        started = started + 10 if restarts else started
        tokens = work if restarts else tokens + work
        if was_refused and restarts:
            run = replace(run, refused=True)
        numbers = [] if what == "unreadable" else page(started if says_start else None, generation_tokens_total=tokens)
        evident = what != "unreadable" and (
            tokens < last_tokens or (says_start and started != last_started) or (was_refused and restarts)
        )
        shown += evident
        run, restarted = follow(run, "vllm", numbers, 1)
        told += restarted
        assert restarted == evident
        if what != "unreadable":
            last_tokens, last_started = tokens, started
    assert told == shown
