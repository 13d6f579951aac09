"""What users of engines reported in the field, each shown not to go unseen here. Each is named by its report.

A fault that another test shows already is not shown twice:

- vLLM 20302, the use of KV cache is wrong: test_numbers, "kv use of ranks", "no share of the cache is larger"
- vLLM 49983, no metrics while the folder that processes share is on a network volume: test_look, "a metrics page that
  fails"
- vLLM 39863, the core is dead and health is well: test_course, "behind a healthy page"; test_agent_watchdogs, "seen by
  the canary alone"
- vLLM 54947, production-stack 867, generation goes on after its client has left: tests/gateway/test_disconnect, with a
  stream and without
- vllm-ascend 16315, preemption thrash without a token: test_course, "preemption thrash"
- gateway-api-inference-extension 2950, one engine of several on a page: test_ranks; test_served_model
"""

from __future__ import annotations

from tests.wire.engine_pages.reading import page_of, read

VLLM = page_of("vllm-0.32.0")


def changed(**values: float) -> bytes:
    """The real page with other values of these series."""
    lines = VLLM.decode().splitlines(keepends=True)
    for number, line in enumerate(lines):
        name = line.partition("{")[0].removeprefix("vllm:")
        if name in values:
            lines[number] = f"{line.rpartition(' ')[0]} {values[name]}\n"
    return "".join(lines).encode()


def unfinished(found: dict[str, float]) -> float:
    """Requests that gave a first token and no end, of those that docs/engines.md counts."""
    finished = sum(value for name, value in found.items() if name.startswith("requests_finished_total["))
    return found["ttft_seconds_count"] - finished


def test_requests_whose_client_left_are_seen_though_the_engine_counts_none_as_aborted():
    """vLLM 31503, and seen in a real run: neither `abort` nor any other reason counts them."""
    before, after = read(VLLM), read(changed(time_to_first_token_seconds_count=8))
    assert after["requests_finished_total[abort]"] == 0
    assert unfinished(after) - unfinished(before) == 5


def test_a_prefix_cache_that_never_hits_is_a_0_and_not_absent():
    """vLLM 54607: a shared prefix that is shorter than a block is never found."""
    found = read(changed(prefix_cache_queries_total=9_000_000, prefix_cache_hits_total=0))
    assert found["prefix_cache_queries_tokens_total"] == 9_000_000
    assert found["prefix_cache_hits_tokens_total"] == 0


def test_answers_of_one_token_do_not_make_tokens_look_fast():
    """vLLM counts 0 s a token for them, in a metric that is not taken: that of the times between tokens is."""
    one_token = {
        f"request_time_per_output_token_seconds_{part}": value for part, value in (("sum", 0), ("count", 1000))
    }
    assert read(changed(**one_token)) == read(VLLM)
    assert "request_time_per_output_token_seconds_count" in VLLM.decode()
