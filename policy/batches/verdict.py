"""What becomes of a line that was run once: it is done, it has failed, or it is tried again."""

from __future__ import annotations

from typing import Literal, NamedTuple

Outcome = Literal["done", "failed", "again"]
# The engine broke, the gateway did, or the line took longer than any request may: a few more tries show which it was.
_DOUBTFUL = (408, 500, 502, 504)
DOUBTFUL_TRIES = 4
# Says that there is no capacity, or no share of it, now: as often as the window allows.
_LATER = (425, 429, 503)
# Of the gateway's reasons with such a status, those that no waiting changes: only a new session would.
_FOR_GOOD = frozenset({"session_iterations", "session_tokens", "session_cost", "session_repeated_call"})
_FIRST_WAIT_MS, _LONGEST_WAIT_MS = 1_000, 300_000


class Verdict(NamedTuple):
    """`after_ms`: how long the line rests before it is tried again; 0 where it is not."""

    outcome: Outcome
    after_ms: int = 0


def verdict(status: int, reason: str, retry_after_ms: int, tries: int) -> Verdict:
    """Of an answer with this status, on the `tries`-th try.

    `reason`: the name of the refusal, empty where it was none. `retry_after_ms`: what the answer asks for; 0: nothing.
    """
    if 200 <= status < 300:
        return Verdict("done")
    again = status in _LATER and reason not in _FOR_GOOD
    if again or (status in _DOUBTFUL and tries < DOUBTFUL_TRIES):
        backoff_ms = min(_LONGEST_WAIT_MS, _FIRST_WAIT_MS * 2 ** min(max(tries, 1) - 1, 10))
        return Verdict("again", max(retry_after_ms, backoff_ms))
    return Verdict("failed")
