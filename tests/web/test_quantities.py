"""Measured values as pages say them."""

from __future__ import annotations

import pytest
from django.utils.translation import override

from controlplane.web.shown.quantities import difference, measured, percent, promised


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (None, "–"), (0.0, "0 %"), (1.0, "100 %"), (0.31, "31 %"), (0.992, "99.2 %"), (0.004, "0.4 %"),
        # Not all, and not none.
        (0.95, "95 %"), (0.99999, "99.9 %"), (0.00001, "0.1 %"),
    ],
)  # fmt: skip
def test_a_part_is_said_as_finely_as_it_matters(ratio: float | None, said: str) -> None:
    with override("en"):
        assert percent(ratio) == said


def test_turkish_writes_the_sign_first() -> None:
    with override("tr"):
        assert percent(0.992) == "%99,2"
        assert (difference(-0.5, 1), difference(0.12)) == ("-%50,0", "+%12")


def test_a_difference_has_its_sign() -> None:
    with override("en"):
        assert (difference(-0.5, 1), difference(0.12), difference(0.0)) == ("-50.0 %", "+12 %", "+0 %")


@pytest.mark.parametrize(
    ("value", "said"), [(None, "–"), (0, "0"), (0.034, "0.03"), (4.2, "4.20"), (36.52, "36.5"), (1240.4, "1,240")]
)
def test_a_value_has_three_digits_that_count(value: float | None, said: str) -> None:
    with override("en"):
        assert measured(value) == said


@pytest.mark.parametrize(("seconds", "said"), [(0.05, "50 ms"), (2.0, "2 s"), (2.5, "2.5 s"), (120.0, "120 s")])
def test_a_promise_is_said_as_it_was_set(seconds: float, said: str) -> None:
    with override("en"):
        assert promised(seconds) == said
