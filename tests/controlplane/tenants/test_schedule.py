"""Other limits in named hours, as people give them."""

from __future__ import annotations

import pytest

from tests.controlplane.core.configuration import compiled
from wire import snapshot
from wire.problems import type_problems

NIGHTS = {"days": ["friday", "monday"], "from": "22:00", "until": "06:30", "tpm_limit": 90_000}


def test_hours_are_given_as_on_a_clock_and_travel_as_minutes(operator):
    made = operator.post("/tenants", {"name": "acme", "time_zone": "Europe/Istanbul", "schedule": {"nights": NIGHTS}})
    assert made.status_code == 201, made.content
    assert made.json()["item"]["schedule"] == {
        "nights": {
            "order": 100,
            "days": ["monday", "friday"],
            "from": "22:00",
            "until": "06:30",
            "tpm_limit": 90_000,
            "rpm_limit": None,
            "max_parallel_requests": None,
        }
    }
    content = compiled("tenants", "acme")
    assert type_problems(content, snapshot.Tenant) == []
    assert content["time_zone"] == "Europe/Istanbul"
    assert content["schedule"] == {
        "nights": {
            "order": 100,
            "days": {"monday": True, "friday": True},
            "from_minute": 22 * 60,
            "until_minute": 6 * 60 + 30,
            "tpm_limit": 90_000,
        }
    }


def test_a_schedule_that_is_read_can_be_given_again(operator):
    operator.post("/tenants", {"name": "acme", "schedule": {"nights": NIGHTS}})
    read = operator.get("/tenants/acme").json()["schedule"]
    again = operator.patch("/tenants/acme", {"schedule": read})
    assert (again.status_code, again.json()["patch"]) == (200, {})
    operator.patch("/tenants/acme", {"schedule": {}})
    assert "schedule" not in compiled("tenants", "acme")


@pytest.mark.parametrize(
    ("changes", "path", "rule"),
    [
        ({"from": "24:00"}, "/schedule/nights/from", "pattern"),
        ({"until": "9:00"}, "/schedule/nights/until", "pattern"),
        ({"until": "09:00\n"}, "/schedule/nights/until", "pattern"),
        ({"until": None}, "/schedule/nights/until", "string_type"),
        ({"days": []}, "/schedule/nights/days", "too_short"),
        ({"days": ["funday"]}, "/schedule/nights/days/0", "literal_error"),
        ({"tpm_limit": -1}, "/schedule/nights/tpm_limit", "range"),
        ({"tpm_limit": None}, "/schedule/nights", "one_of"),
        ({"from_minute": 3}, "/schedule/nights/from_minute", "extra_forbidden"),
    ],
)
def test_hours_that_are_none_are_refused_by_field(operator, changes, path, rule):
    answer = operator.post("/tenants", {"name": "acme", "schedule": {"nights": {**NIGHTS, **changes}}})
    assert answer.status_code == 422
    assert [(problem["path"], problem["rule"]) for problem in answer.json()["problems"]] == [(path, rule)]


def test_names_and_number_of_hours_are_bounded(operator):
    for schedule in ({"No Name": NIGHTS}, {f"h{number}": NIGHTS for number in range(25)}):
        answer = operator.post("/tenants", {"name": "acme", "schedule": schedule})
        assert answer.status_code == 422
        assert answer.json()["problems"][0]["path"].startswith("/schedule")


def test_a_tenant_shows_the_limits_that_hold_now_and_the_audit_does_not(operator):
    always = {"from": "00:00", "until": "00:00", "tpm_limit": 7}
    made = operator.post("/tenants", {"name": "acme", "rpm_limit": 5, "schedule": {"always": always}})
    assert "limits_now" not in made.json()["item"]
    expected = {
        "tpm_limit": 7,
        "rpm_limit": 5,
        "max_parallel_requests": None,
        "daily_token_budget": None,
        "source": "schedule",
        "schedule": "always",
        "until": None,
    }
    assert operator.get("/tenants/acme").json()["limits_now"] == expected
    assert operator.get("/tenants").json()["items"][0]["limits_now"] == expected
    operator.patch("/tenants/acme", {"schedule": {}})
    assert operator.get("/tenants/acme").json()["limits_now"]["source"] == "base"
