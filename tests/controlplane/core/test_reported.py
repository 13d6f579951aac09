from __future__ import annotations

import pytest

from controlplane.core.reported import one_line, reported_text
from wire.canonical import check_canonical
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


def test_a_reason_is_one_line_that_the_audit_takes() -> None:
    said = one_line("reset: busy\n\x1b[31m2 processes\x00 hold it\ud800\n" + "x" * 600)
    assert said.startswith("reset: busy [31m2 processes hold it xxx")
    assert len(said) == 500
    check_canonical(said)
