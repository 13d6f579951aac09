from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.names import model_called
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
