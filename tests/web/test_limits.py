"""Limits by the hour, of the day, and for a time, on the pages of a tenant."""

from __future__ import annotations

import re
import time

import pytest
from django.test import Client

from controlplane.tenants import services
from controlplane.web.forms.common import TenantForm
from controlplane.web.forms.hours import HoursField, line_of
from tests.web.conftest import digest_of, write
from tests.web.telling import refusal

EDIT, FOR_A_TIME = "/tenants/acme/edit/", "/tenants/acme/temporary-limits/"
HOURS = "nights 22:00-06:30 monday,friday tpm_limit=90000 order=10\nall 00:00-00:00 rpm_limit=5"


def _fields(**changed: str) -> dict[str, str]:
    return {"weight": "1", "tpm_limit": "60000", **changed}


def _apply(client: Client, path: str, fields: dict[str, str]) -> None:
    page = client.post(path, {**fields, "step": "review"}).content.decode()
    answer = client.post(path, {**fields, "step": "apply", "digest": digest_of(page), "reason": "launch night"})
    assert answer.status_code == 302, answer.content.decode()


def test_hours_budget_and_time_zone_are_set_and_shown(acme: str, operator: Client) -> None:
    write(lambda unit: services.SESSION_LIMITS.create(unit, "agents", {}))
    write(lambda unit: services.CACHE_POLICIES.create(unit, "faq", {}))
    named = {"session_limits": "agents", "cache_policy": "faq"}
    _apply(
        operator,
        EDIT,
        _fields(schedule=HOURS, time_zone="Europe/Istanbul", daily_token_budget="5000000", **named),
    )
    row = services.describe(services.get(acme))
    assert row["daily_token_budget"] == 5_000_000
    assert (row["time_zone"], row["session_limits"], row["cache_policy"]) == ("Europe/Istanbul", "agents", "faq")
    assert row["schedule"]["nights"]["days"] == ["monday", "friday"]
    page = operator.get("/tenants/acme/").content.decode()
    for shown in ("5,000,000", "Europe/Istanbul", *HOURS.splitlines(), "agents", "faq"):
        assert shown in page
    assert "the hours “all”" in page or "the hours “nights”" in page
    # The form as it came changes nothing.
    again = _fields(schedule=HOURS, time_zone="Europe/Istanbul", daily_token_budget="5000000", **named)
    assert "Nothing would change." in operator.post(EDIT, {**again, "step": "review"}).content.decode()
    form = operator.get(EDIT).content.decode()
    assert HOURS.splitlines()[0] in form


def test_the_list_shows_the_limits_that_hold_now_and_why(acme: str, viewer: Client) -> None:
    before = viewer.get("/tenants/").content.decode()
    assert "60,000" in before
    assert "limits for a time" not in before
    given = {"tpm_limit": 120_000, "expires_in_seconds": 60}
    write(lambda unit: services.give_temporary_limits(unit, acme, given))
    now = viewer.get("/tenants/").content.decode()
    assert "120,000" in now
    assert "60,000" not in now
    assert "limits for a time" in now


def test_hours_are_written_as_they_are_read() -> None:
    field = HoursField()
    schedule = field.clean(HOURS)
    assert "\n".join(map(line_of, schedule.items())) == HOURS
    assert field.prepare_value(schedule) == HOURS
    assert field.clean("\n  \n") == {}


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("nights", "Line 1: write a name, then a time as 22:00-06:30."),
        ("\nnights 22:00-06:30 tomorrow", "Line 2: “tomorrow” is neither days"),
        ("nights 22:00-06:30 tpm_limit=many", "“tpm_limit=many” is neither"),
        ("a 01:00-02:00 rpm_limit=1\na 03:00-04:00 rpm_limit=1", "Line 2: there is “a” already."),
    ],
)
def test_a_line_that_cannot_be_read_is_named(db: None, typed: str, says: str) -> None:
    form = TenantForm({"weight": "1", "schedule": typed})
    assert not form.is_valid()
    assert says in form.errors["schedule"][0]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"schedule": "nights 25:00-06:30 tpm_limit=1"}, "nights: Give times from 00:00 to 23:59"),
        ({"schedule": "nights 22:00-06:30"}, "nights: Give at least one limit, such as tpm_limit=90000."),
        ({"time_zone": "Mars/Olympus"}, "Give an IANA time zone, such as Europe/Istanbul."),
    ],
)
def test_what_the_service_refuses_stands_at_its_field(
    acme: str, operator: Client, fields: dict[str, str], says: str
) -> None:
    answer = operator.post(EDIT, {**_fields(**fields), "step": "review"})
    page = answer.content.decode()
    assert answer.status_code == 422
    label = page.index(f'for="id_{next(iter(fields))}"')
    assert says in page[label : page.index("</div>", label)]


def test_limits_are_given_for_hours_and_ended(acme: str, operator: Client) -> None:
    _apply(operator, FOR_A_TIME, {"tpm_limit": "120000", "expires_in_seconds": "2"})
    given = services.TENANTS.show([services.get(acme)])[0]
    assert (given["limits_now"]["tpm_limit"], given["temporary"]["reason"]) == (120_000, "launch night")
    page = operator.get("/tenants/acme/").content.decode()
    assert "120,000" in page
    assert "given for a time by operator-person: launch night" in page
    assert re.search(r"<dt>Until</dt><dd>\d{4}-\d\d-\d\d \d\d:\d\d <span[^>]*>UTC<", page)
    _apply(operator, f"{FOR_A_TIME}end/", {})
    assert services.describe(services.get(acme))["temporary"] is None
    assert "Limits that hold now" not in operator.get("/tenants/acme/").content.decode()
    assert operator.get(f"{FOR_A_TIME}end/").status_code == 404


def test_what_is_wrong_with_hours_is_said_once_for_each_of_them(acme: str, operator: Client) -> None:
    typed = "nights 25:00-26:00 tpm_limit=4\nearly 22-06 tpm_limit=1\nidle 10:00-11:00"
    page = operator.post(EDIT, {**_fields(schedule=typed), "step": "review"}).content.decode()
    for said in (
        "nights: Give times from 00:00 to 23:59, such as 22:00-06:30.",
        "early: Give times from 00:00 to 23:59, such as 22:00-06:30.",
        "idle: Give at least one limit, such as tpm_limit=90000.",
    ):
        assert page.count(said) == 1


def test_changed_hours_and_limits_for_a_time_read_as_on_the_form(acme: str, operator: Client) -> None:
    given = {"rpm_limit": 7, "expires_in_seconds": 60}
    write(lambda unit: services.give_temporary_limits(unit, acme, given))
    ending = operator.get(f"{FOR_A_TIME}end/").content.decode()
    for label in ("Limits for a time › Requests per minute", "Limits for a time › Given by"):
        assert label in ending
    review = operator.post(EDIT, {**_fields(schedule=HOURS), "step": "review"}).content.decode()
    for label in ("nights › Tokens per minute", "nights › From", "nights › Days"):
        assert f"Other limits by the hour › {label}" in review


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"expires_in_seconds": "1"}, "Give at least one limit."),
        ({"tpm_limit": "5"}, "This field is required."),
        ({"tpm_limit": "5", "expires_in_seconds": "745"}, "less than or equal to 744"),
        ({"tpm_limit": "-5", "expires_in_seconds": "1"}, "Give a whole number, 0 or more."),
    ],
)
def test_limits_for_a_time_that_cannot_be_given_are_refused_on_the_form(
    acme: str, operator: Client, fields: dict[str, str], says: str
) -> None:
    answer = operator.post(FOR_A_TIME, {**fields, "step": "review"})
    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert services.describe(services.get(acme))["temporary"] is None
    assert operator.post("/tenants/nobody/temporary-limits/", fields).status_code == 404


def test_going_back_from_the_review_keeps_what_was_typed(acme: str, operator: Client) -> None:
    fields = {"tpm_limit": "120000", "expires_in_seconds": "1.5"}
    assert 'name="expires_in_seconds" value="1.5"' in operator.post(
        FOR_A_TIME, {**fields, "step": "review"}
    ).content.decode().replace('type="hidden" ', "")
    assert 'value="1.5"' in operator.post(FOR_A_TIME, {**fields, "step": "edit"}).content.decode()


def test_a_viewer_sees_what_holds_and_no_buttons(acme: str, viewer: Client) -> None:
    write(lambda unit: services.give_temporary_limits(unit, acme, {"rpm_limit": 7, "expires_in_seconds": 60}))
    page = viewer.get("/tenants/acme/").content.decode()
    assert "Limits that hold now" in page
    assert "temporary-limits/" not in page.replace("/api/v1/tenants/acme/temporary-limits", "")


@pytest.mark.parametrize(("path", "limit"), [(EDIT, {"tpm_limit": "400"}), (FOR_A_TIME, {"tpm_limit": "400"})])
def test_a_limit_is_tried_on_what_came_before_it_is_applied(
    acme: str, operator: Client, path: str, limit: dict[str, str]
) -> None:
    fields = _fields(**limit) if path == EDIT else {**limit, "expires_in_seconds": "2"}
    assert "Tried on" not in operator.post(path, {**fields, "step": "review"}).content.decode()
    minutes_ago = time.time_ns() // 1_000_000 - 180_000
    numbers = {"prompt_tokens": 100, "max_tokens": 100, "sequences": 1}
    for number in range(3):
        refusal(f"r-{number}", at=minutes_ago, numbers=numbers)
    page = operator.post(path, {**fields, "step": "review"}).content.decode()
    assert "Tried on the 60 minutes before, in which 3 requests came:" in page
    assert "1 (tpm_limit 1) would have been refused, and 0 by what holds now." in page
