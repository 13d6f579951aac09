"""What is admitted of a request before its quota, and how long its answer may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from policy.admission import (
    NotAdmitted,
    bounded_output,
    check_key,
    check_model,
    check_prompt,
    check_sequences,
    check_tenant,
    priority_class,
)
from wire.snapshot import Key, Model, Tenant

MODEL = Model(max_context_tokens=1000, default_max_tokens=50, max_tokens=400)


def test_a_blocked_tenant_is_told_so():
    check_tenant("acme", Tenant())
    with pytest.raises(NotAdmitted, match="acme") as refused:
        check_tenant("acme", Tenant(blocked=True))
    assert refused.value.reason == "tenant_blocked"


def test_a_key_ends_with_the_millisecond_that_it_names():
    key = Key(tenant="acme", prefix="hw-abcde", expires_at_ms=10)
    check_key(key, 9)
    with pytest.raises(NotAdmitted) as refused:
        check_key(key, 10)
    assert refused.value.reason == "key_expired"


@pytest.mark.parametrize(
    ("tenant", "asked", "found"),
    [
        (Tenant(), None, ""),
        (Tenant(default_priority_class="batch"), None, "batch"),
        (Tenant(), "chat", "chat"),
        # The default needs no permission.
        (Tenant(priority_classes={}, default_priority_class="batch"), "batch", "batch"),
    ],
)
def test_the_class_is_the_asked_one_else_the_default(tenant, asked, found):
    assert priority_class(tenant, asked, {"chat", "batch"}) == found


@pytest.mark.parametrize(
    ("tenant", "asked", "reason"),
    [
        (Tenant(), "nobody", "bad_header"),
        (Tenant(), "", "bad_header"),
        (Tenant(priority_classes={"batch": True}), "chat", "priority_class_not_allowed"),
    ],
)
def test_a_class_that_is_not_there_or_not_allowed_is_refused(tenant, asked, reason):
    with pytest.raises(NotAdmitted) as refused:
        priority_class(tenant, asked, {"chat", "batch"})
    assert refused.value.reason == reason


def test_permission_is_for_the_model_or_what_stands_for_it_and_the_refusal_says_what_the_client_called_it():
    check_model(Tenant(models={"m": True}), "alias", "m", {"m"})
    check_model(Tenant(models={"alias": True}), "alias", "m", {"m"})
    with pytest.raises(NotAdmitted, match="may not use the model 'm'"):
        check_model(Tenant(models={"alias": True}), "m", "m", {"m"})
    with pytest.raises(NotAdmitted, match="alias") as refused:
        check_model(Tenant(models={"other": True}), "alias", "m", {"m"})
    assert (refused.value.reason, refused.value.param) == ("model_not_allowed", "model")
    with pytest.raises(NotAdmitted) as refused:
        check_model(Tenant(models={}), "x", "x", {"m"})
    assert refused.value.reason == "model_not_found"


def test_a_measured_prompt_must_leave_room_and_an_estimated_one_is_left_to_the_engine():
    check_prompt(MODEL, 999, measured=True, param="prompt")
    check_prompt(MODEL, 1000, measured=False, param="prompt")
    with pytest.raises(NotAdmitted) as refused:
        check_prompt(MODEL, 1000, measured=True, param="prompt")
    assert (refused.value.reason, refused.value.param) == ("context_length_exceeded", "prompt")


def test_sequences_are_held_to_the_cap():
    check_sequences(Tenant(), 10_000)
    check_sequences(Tenant(n_cap=2), 2)
    with pytest.raises(NotAdmitted, match="3 sequences"):
        check_sequences(Tenant(n_cap=2), 3)


@given(
    asked=st.none() | st.integers(1, 5000),
    prompt=st.integers(0, 5000),
    cap=st.just(UNSET) | st.integers(1, 5000),
)
def test_an_answer_is_never_longer_than_anything_allows_nor_than_was_asked(asked, prompt, cap):
    bound = bounded_output(asked, prompt, MODEL, Tenant(max_tokens_cap=cap))
    room = max(1, MODEL.max_context_tokens - prompt)
    largest = min(MODEL.max_tokens, room, MODEL.max_tokens if cap is UNSET else cap)
    wanted = MODEL.default_max_tokens if asked is None else asked
    assert bound.max_tokens == min(wanted, largest)
    assert bound.note == ("default" if asked is None else "clamped" if asked > largest else "")
