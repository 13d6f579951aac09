from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.names import may_call, model_called, models_of
from wire.snapshot import Alias, Tenant

ALIASES = {"chat": Alias("chat-v2")}


def test_a_name_stands_for_the_version_that_its_tenant_stays_with():
    assert model_called("chat", Tenant(pins={"chat": "chat-v1"}), ALIASES) == "chat-v1"


def test_others_follow_the_alias_and_a_version_may_be_called_by_its_own_name():
    assert model_called("chat", Tenant(), ALIASES) == "chat-v2"
    assert model_called("chat-v1", Tenant(pins={"chat": "chat-v1"}), ALIASES) == "chat-v1"
    assert model_called("nobody", Tenant(), ALIASES) == "nobody"


NAMES = st.sampled_from(["chat", "chat-v1", "chat-v2", "other"])


@given(NAMES, st.dictionaries(NAMES, NAMES))
def test_a_pin_moves_nothing_but_what_it_names(name, pins):
    tenant = Tenant(pins=pins)
    expected = pins[name] if name in pins else model_called(name, Tenant(), ALIASES)
    assert model_called(name, tenant, ALIASES) == expected


@given(NAMES, st.none() | st.sets(NAMES), st.dictionaries(NAMES, NAMES))
def test_what_a_tenant_may_have_is_what_it_may_call(name, models, pins):
    tenant = Tenant(pins=pins) if models is None else Tenant(pins=pins, models=dict.fromkeys(models, True))
    model, allowed = model_called(name, tenant, ALIASES), models_of(tenant, ALIASES)
    if allowed is None or model not in allowed:
        assert may_call(tenant, name, model) is (allowed is None)
    if may_call(tenant, name, model):
        assert allowed is None or model in allowed
