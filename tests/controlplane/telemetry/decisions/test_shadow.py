"""Limits tried on what came: what gateways told of as it was, the rest drawn from their sketches."""

from __future__ import annotations

import time
from typing import Any

import pytest

from controlplane.core.models import Role
from controlplane.telemetry.decisions import shadow
from tests.controlplane.conftest import Rest
from tests.controlplane.core.people import person, token_of
from tests.controlplane.telemetry.decisions.conftest import decision
from tests.controlplane.telemetry.decisions.test_sketches import counts
from wire.sketches import MINUTE_MS

SIZES = {"prompt_tokens": 100, "max_tokens": 50, "sequences": 1}
LIMITS = {"tpm_limit": 600}


@pytest.fixture
def minute_ms() -> int:
    """A minute that ended, five minutes ago."""
    return time.time_ns() // 1_000_000 // MINUTE_MS * MINUTE_MS - 5 * MINUTE_MS


def tell(gateway: Rest, minute_ms: int, *, arrivals: int, admitted: int, refused: int) -> None:
    """A minute of `arrivals`, of which some are told of one by one."""
    told = [
        decision(
            at=minute_ms + number * 10, stage="serve", reason="admitted", status=200, message="",
            numbers={**SIZES, "output_tokens": 20, "took_ms": 4_000},
        )
        for number in range(admitted)
    ]  # fmt: skip
    told += [decision(at=minute_ms + 5_000 + number, numbers=SIZES) for number in range(refused)]
    assert gateway.post("/decisions", told).status_code == 200
    sketch = {
        "minute": minute_ms, "tenant": "acme", "class": "batch", "pool": "chat", "arrivals": arrivals,
        "prompt_tokens": counts(*[100] * arrivals), "max_tokens": counts(*[50] * arrivals),
        "output_tokens": counts(*[20] * arrivals),
    }  # fmt: skip
    assert gateway.post("/sketches", [sketch]).status_code == 200


def tried(rest: Rest, limits: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = rest.post("/shadow", {"tenants": {"acme": limits}, **more})
    assert answer.status_code == 200, answer.content
    (found,) = answer.json()["tenants"]
    return dict(found)


def test_what_was_told_and_what_was_only_counted_are_tried_together(
    gateway: Rest, viewer: Rest, minute_ms: int
) -> None:
    tell(gateway, minute_ms, arrivals=40, admitted=3, refused=2)
    found = tried(viewer, LIMITS)
    assert (found["tenant"], found["limits"], found["arrivals"], found["of_them_told"]) == ("acme", LIMITS, 40, 5)
    assert found["refused_then"] == {"tpm_limit": 2}
    assert found["configured"] == {
        "refused": 0, "reasons": {}, "by_class": {"batch": {"arrivals": 40, "refused": 0}},
    }  # fmt: skip
    # 600 tokens at once and 600 a minute hold at most 10 requests that use 120, of 40.
    proposed = found["proposed"]
    assert proposed["reasons"] == {"tpm_limit": proposed["refused"]}
    assert 29 <= proposed["refused"] < 40
    assert proposed["by_class"] == {"batch": {"arrivals": 40, "refused": proposed["refused"]}}
    # The same question has the same answer.
    assert tried(viewer, LIMITS) == found


def test_a_request_that_can_never_fit_is_named_so(gateway: Rest, viewer: Rest, minute_ms: int) -> None:
    tell(gateway, minute_ms, arrivals=4, admitted=2, refused=0)
    assert tried(viewer, {"tpm_limit": 120})["proposed"]["reasons"] == {"never_fits": 4}
    assert tried(viewer, {"tpm_limit": 120, "max_tokens_cap": 10})["proposed"]["refused"] < 4
    assert tried(viewer, {"max_parallel_requests": 0})["proposed"]["reasons"] == {"never_fits": 4}


def test_requests_that_run_at_once_are_known_from_samples_alone(gateway: Rest, viewer: Rest, minute_ms: int) -> None:
    tell(gateway, minute_ms, arrivals=3, admitted=0, refused=0)
    found = tried(viewer, {"max_parallel_requests": 1})
    assert (found["parallel_requests_tried"], found["proposed"]["refused"]) == (False, 0)
    tell(gateway, minute_ms - MINUTE_MS, arrivals=3, admitted=3, refused=0)
    found = tried(viewer, {"max_parallel_requests": 1})
    assert found["parallel_requests_tried"]
    assert found["proposed"]["reasons"]["max_parallel_requests"] >= 2


def test_an_answer_of_another_pool_than_was_asked_first_counts_once(
    gateway: Rest, viewer: Rest, admin: Rest, minute_ms: int
) -> None:
    admin.post("/pools", {"name": "spare", "model": "org/m-1"})
    told = decision(at=minute_ms, stage="serve", reason="admitted", status=200, pool="spare", numbers=SIZES)
    gateway.post("/decisions", [told])
    tell(gateway, minute_ms, arrivals=2, admitted=1, refused=0)
    assert tried(viewer, LIMITS)["arrivals"] == 2


def test_only_the_minutes_that_are_asked_about_count(gateway: Rest, viewer: Rest, minute_ms: int) -> None:
    tell(gateway, minute_ms, arrivals=4, admitted=2, refused=1)
    assert tried(viewer, LIMITS, minutes=2)["arrivals"] == 0


def test_limits_that_hold_already_are_tried_beside_the_proposed_ones(
    gateway: Rest, viewer: Rest, operator: Rest, minute_ms: int
) -> None:
    operator.patch("/tenants/acme", {"rpm_limit": 1})
    tell(gateway, minute_ms, arrivals=10, admitted=10, refused=0)
    found = tried(viewer, {"rpm_limit": None})
    assert found["configured"]["reasons"]["rpm_limit"] == 9
    assert found["proposed"]["refused"] == 0


def test_what_is_asked_wrongly_is_refused_by_field(gateway: Rest, viewer: Rest) -> None:
    for body, path in (
        ({}, "/tenants"),
        ({"tenants": {}}, "/tenants"),
        ({"tenants": {"acme": {"tpm": 1}}}, "/tenants/acme/tpm"),
        ({"tenants": {"acme": {"tpm_limit": -1}}}, "/tenants/acme/tpm_limit"),
        ({"tenants": {"acme": {}}, "minutes": 0}, "/minutes"),
    ):
        answer = viewer.post("/shadow", body)
        assert answer.status_code == 422, body
        assert [problem["path"] for problem in answer.json()["problems"]] == [path]
    assert viewer.post("/shadow", {"tenants": {"nobody": {}}}).status_code == 404


def test_more_than_can_be_tried_is_refused_by_name(
    gateway: Rest, viewer: Rest, minute_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(gateway, minute_ms, arrivals=6, admitted=4, refused=0)
    monkeypatch.setattr(shadow, "ARRIVALS_MAX", 5)
    answer = viewer.post("/shadow", {"tenants": {"acme": LIMITS}})
    assert (answer.status_code, answer.json()["code"]) == (422, "too_many_arrivals")
    monkeypatch.setattr(shadow, "ARRIVALS_MAX", 3)
    assert viewer.post("/shadow", {"tenants": {"acme": LIMITS}}).json()["code"] == "too_many_arrivals"


def test_people_of_a_tenant_try_their_own(gateway: Rest, admin: Rest) -> None:
    admin.post("/tenants", {"name": "other"})
    own = token_of(person(Role.VIEWER, ["acme"]))
    assert own.post("/shadow", {"tenants": {"acme": LIMITS}}).status_code == 200
    assert own.post("/shadow", {"tenants": {"acme": LIMITS, "other": LIMITS}}).status_code == 404
