"""Fields that the forms share."""

from __future__ import annotations

import re

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from controlplane.web.forms.common import ScaledField
from tests.web.test_access import PAGES


@pytest.mark.parametrize("typed", ["1e999999999", "-1e999999999", "9" * 4400])
def test_a_number_that_cannot_be_reckoned_with_is_refused_at_its_field(typed: str) -> None:
    with pytest.raises(ValidationError, match="digits"):
        ScaledField(1000).clean(typed)


def test_a_number_is_kept_in_small_units() -> None:
    assert ScaledField(1000, decimal_places=3).clean("2.5") == 2500


@pytest.mark.timeout(600)
def test_no_form_asks_to_choose_from_nothing(admin: Client) -> None:
    """Where nothing was made yet, what comes first is said, with the way there and the REST call."""
    empty = list[str]()
    for name, (path, _role) in PAGES.items():
        if "{" in path:
            continue
        page = admin.get(path).content.decode()
        for select, options in re.findall(r"<select([^>]*)>(.*?)</select>", page, re.DOTALL):
            if "<option" not in options:
                empty.append(f"{name}: {select}")
    assert not empty, "\n".join(empty)


@pytest.mark.parametrize(
    ("path", "missing", "way"),
    [
        ("/breakers/overrides-new/", "There is no pool yet.", "/pools-new/"),
        ("/what-if-new/", "There is no pool yet.", "/pools-new/"),
        ("/engines-new/", "There is no pool yet.", "/pools-new/"),
        ("/rollouts-new/", "There is no pool yet.", "/pools-new/"),
        ("/pools-new/", "No model yet.", "/models-new/"),
        ("/aliases-new/", "No model yet.", "/models-new/"),
        ("/planner/promise/", "No tenants yet.", "/tenants-new/"),
    ],
)
def test_what_comes_first_is_said_with_the_way_there_and_the_call(
    path: str, missing: str, way: str, admin: Client
) -> None:
    page = admin.get(path).content.decode()
    assert missing in page
    assert f'<a class="button primary" href="{way}">' in page
    assert "curl --fail-with-body" in page
    assert 'value="review"' not in page


def test_who_may_not_make_what_comes_first_is_told_who_may(operator: Client) -> None:
    page = operator.get("/pools-new/").content.decode()
    assert "An admin can make one." in page
    assert 'href="/models-new/"' not in page
