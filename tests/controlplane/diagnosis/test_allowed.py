"""When a policy may apply a lever, and what it says where it may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.diagnosis.allowed import Asked, Limits, refusal

LIMITS = Limits(max_an_hour=2, min_confidence_permille=800, pools=frozenset({"chat", "batch"}))
FINE = Asked(confidence_permille=800, pools=["chat"], applied_in_the_hour=1)


def test_it_may_within_its_limits():
    assert refusal(LIMITS, FINE) == ""
    assert refusal(replace(LIMITS, pools=None), replace(FINE, pools=[])) == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"confidence_permille": 799}, "799 ‰"),
        ({"pools": ["chat", "other"]}, "not for pool other"),
        ({"pools": []}, "names no pool"),
        ({"applied_in_the_hour": 2}, "2 within an hour"),
        ({"watched": ["lower_cap"]}, "lower_cap"),
        ({"tried": True}, "before"),
        ({"changed_by": "ada changed pool chat"}, "stands back: ada changed pool chat"),
    ],
)
def test_it_says_which_limit_it_is_at(change: dict[str, object], says: str):
    assert says in refusal(LIMITS, replace(FINE, **change))  # type: ignore[arg-type]


def test_what_a_person_did_goes_before_all_limits():
    asked = replace(FINE, changed_by="ada changed it", applied_in_the_hour=9, confidence_permille=0)
    assert refusal(LIMITS, asked).startswith("stands back")
