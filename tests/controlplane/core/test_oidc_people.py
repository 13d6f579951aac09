"""What the values of a claim give, and whose row is whose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core import oidc_people
from controlplane.core.models import Role, User
from controlplane.core.oidc_people import admit, grant_of
from controlplane.core.oidc_rows import Grant

ORDER = [role.value for role in Role]
tenants = st.none() | st.lists(st.sampled_from(["acme", "beta", "gamma"]), min_size=1, unique=True).map(tuple)
grants = st.builds(Grant, role=st.sampled_from(ORDER), tenants=tenants)
tables = st.dictionaries(st.sampled_from("abcd"), grants)


@given(tables, st.lists(st.sampled_from("abcdef")))
def test_nobody_gets_what_no_value_gives(table: dict[str, Grant], values: list[str]) -> None:
    found, given_ = grant_of({"groups": values}, "groups", table), [table[value] for value in values if value in table]
    if not given_:
        assert found is None
        return
    assert found is not None
    assert found.role == max((grant.role for grant in given_), key=ORDER.index)
    same_role = [grant for grant in given_ if grant.role == found.role]
    if found.tenants is None:
        assert any(grant.tenants is None for grant in same_role)
    else:
        assert set(found.tenants) == {name for grant in same_role for name in grant.tenants or ()}


@given(tables, st.lists(st.sampled_from("abcdef")))
def test_the_order_and_number_of_the_values_are_no_matter(table: dict[str, Grant], values: list[str]) -> None:
    once = grant_of({"groups": values}, "groups", table)
    assert grant_of({"groups": [*reversed(values), *values]}, "groups", table) == once


@pytest.mark.parametrize(
    ("claims", "claim"),
    [
        ({"groups": "ops"}, "groups"),
        ({"groups": ["x", 7, None, {"ops": 1}, "ops"]}, "groups"),
        ({"realm_access": {"roles": ["ops"]}}, "realm_access.roles"),
        ({"https://id.example/groups": ["ops"]}, "https://id.example/groups"),
    ],
)
def test_values_are_found_where_providers_put_them(claims: dict[str, object], claim: str) -> None:
    assert grant_of(claims, claim, {"ops": Grant("operator")}) == Grant("operator")


@pytest.mark.parametrize(
    "claims",
    [{}, {"groups": None}, {"groups": {"ops": True}}, {"groups": [["ops"]]}, {"groups": "opsops"}, {"a": "ops"}],
)
def test_what_is_no_value_gives_nothing(claims: dict[str, object]) -> None:
    assert grant_of(claims, "groups", {"ops": Grant("operator")}) is None


@pytest.mark.django_db
def test_two_people_of_one_name_who_come_first_at_the_same_time_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORKS_OIDC_ROLES", '{"ops": {"role": "operator"}}')
    free_name, came = oidc_people._free_name, list[str]()

    def come(subject: str) -> User:
        return admit("https://id.example", {"sub": subject, "preferred_username": "ada", "groups": "ops"}, "")

    def slowly(claims: Mapping[str, Any], identity: str) -> str:
        name = free_name(claims, identity)
        if not came:
            came.append(name)
            come("the other")
        return name

    monkeypatch.setattr(oidc_people, "_free_name", slowly)
    one = come("one")
    other = User.objects.get(oidc_subject="the other")
    assert came == [other.username] == ["ada"]
    assert one.oidc_subject == "one"
    assert one.username.startswith("ada-")
