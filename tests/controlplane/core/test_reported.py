from __future__ import annotations

import pytest

from controlplane.core.reported import REPORTED_CHARACTERS, reported_text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("no such model: ölçü\n", "no such model: ölçü\n"),
        ("a\x00b", "a\ufffdb"),
        ("x" * REPORTED_CHARACTERS, "x" * REPORTED_CHARACTERS),
        ("x" * (REPORTED_CHARACTERS + 1), "x" * (REPORTED_CHARACTERS - 1) + "…"),
    ],
)
def test_what_a_target_reports_is_kept_as_far_as_it_can_be(text: str, kept: str) -> None:
    assert reported_text(text) == kept
