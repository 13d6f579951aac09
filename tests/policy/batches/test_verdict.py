"""What becomes of a line that was run once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.batches.verdict import DOUBTFUL_TRIES, verdict


@pytest.mark.parametrize(
    ("status", "reason", "tries", "outcome"),
    [
        (200, "", 1, "done"),
        (400, "context_length_exceeded", 1, "failed"),
        (404, "model_not_found", 1, "failed"),
        (429, "tpm_limit", 1, "again"),
        (429, "tpm_limit", 5_000, "again"),
        (429, "session_tokens", 1, "failed"),
        (503, "queue_full", 900, "again"),
        (502, "engine_error", 1, "again"),
        (502, "engine_error", DOUBTFUL_TRIES, "failed"),
        (504, "deadline_exceeded", DOUBTFUL_TRIES - 1, "again"),
    ],
)
def test_what_can_pass_is_tried_again_and_what_cannot_fails(status: int, reason: str, tries: int, outcome: str) -> None:
    assert verdict(status, reason, 0, tries).outcome == outcome


@given(status=st.integers(100, 599), after_ms=st.integers(0, 10**8), tries=st.integers(0, 10**6))
def test_a_rest_is_as_long_as_was_asked_for_and_grows_to_five_minutes(status: int, after_ms: int, tries: int) -> None:
    said = verdict(status, "", after_ms, tries)
    if said.outcome == "again":
        assert after_ms <= said.after_ms <= max(after_ms, 300_000)
        assert said.after_ms >= 1_000
    else:
        assert said.after_ms == 0
