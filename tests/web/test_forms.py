"""Fields that the forms share."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from controlplane.web.forms.common import ScaledField


@pytest.mark.parametrize("typed", ["1e999999999", "-1e999999999", "9" * 4400])
def test_a_number_that_cannot_be_reckoned_with_is_refused_at_its_field(typed: str) -> None:
    with pytest.raises(ValidationError, match="digits"):
        ScaledField(1000).clean(typed)


def test_a_number_is_kept_in_small_units() -> None:
    assert ScaledField(1000, decimal_places=3).clean("2.5") == 2500
