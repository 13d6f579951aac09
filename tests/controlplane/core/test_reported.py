from __future__ import annotations

import pytest

from controlplane.core.reported import reported_text
from wire.problems import MAX_TEXT_CHARACTERS


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("no such model: ölçü\n", "no such model: ölçü\n"),
        ("a\x00b", "a\ufffdb"),
        ("a\ud800b\udfff", "a\ufffdb\ufffd"),
        ("x" * MAX_TEXT_CHARACTERS, "x" * MAX_TEXT_CHARACTERS),
        ("x" * (MAX_TEXT_CHARACTERS + 1), "x" * (MAX_TEXT_CHARACTERS - 1) + "…"),
    ],
)
def test_what_a_target_reports_is_kept_as_far_as_it_can_be(text: str, kept: str) -> None:
    assert reported_text(text) == kept
