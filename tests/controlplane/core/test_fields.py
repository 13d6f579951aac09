from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api.api import api
from controlplane.core import fields as f
from controlplane.core.errors import Refused
from wire import snapshot


class Inner(f.Fields):
    count: f.Count = 0
    label: f.Text = ""


class Outer(f.Fields):
    name: f.Name
    inner: Inner = Inner()
    shares: dict[f.Name, f.PerMille] | None = None


def refusal(fields):
    with pytest.raises(Refused) as refused:
        f.read(Outer, fields)
    return {problem.path: problem.rule for problem in refused.value.problems}


def test_every_problem_is_found_each_at_its_pointer():
    fields = {"inner": {"count": -1, "label": "\x00"}, "shares": {"a/b": 1, "c": 1001}, "colour": 1}
    assert refusal(fields) == {
        "/name": "required",
        "/inner/count": "range",
        "/inner/label": "characters",
        "/shares/a~1b": "pattern",
        "/shares/c": "range",
        "/colour": "unknown",
    }


def test_an_unknown_field_is_answered_with_those_there_are():
    with pytest.raises(Refused, match="there are name, inner, shares"):
        f.read(Outer, {"name": "a", "colour": 1})


def test_groups_merge_and_maps_are_replaced():
    current = {"name": "a", "inner": {"count": 1, "label": "x"}, "shares": {"a": 1}}
    given = {"inner": {"count": 2}, "shares": {"b": 2}}
    assert f.merged(Outer, current, given) == {
        "name": "a",
        "inner": {"count": 2, "label": "x"},
        "shares": {"b": 2},
    }


@given(st.text(max_size=70))
def test_names_are_those_of_the_wire_format(name):
    try:
        msgspec.convert(name, snapshot.Name)
    except msgspec.ValidationError:
        assert f.LIKE_NAME.refusal(name)
    else:
        assert f.LIKE_NAME.refusal(name) is None


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_a_time_survives_the_wire_to_the_millisecond(moment):
    there = f.epoch_ms(moment)
    assert f.epoch_ms(f.from_epoch_ms(there)) == there
    assert abs((f.from_epoch_ms(there) - moment).total_seconds()) < 0.001


def test_the_openapi_page_shows_each_body():
    paths = api.get_openapi_schema()["paths"]
    body = paths["/api/v1/tenants"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["name"]
    assert body["properties"]["weight"] == {
        "default": 1,
        "maximum": 2**53 - 1,
        "minimum": 1,
        "title": "Weight",
        "type": "integer",
    }
    change = paths["/api/v1/tenants/{name}"]["patch"]["requestBody"]["content"]["application/json"]["schema"]
    assert "required" not in change
