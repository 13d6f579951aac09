"""A write that is sent again by a caller who may do less than at first: nothing is shown, and nothing is done twice."""

from __future__ import annotations

import pytest

from controlplane.core.models import ApiToken, Role, User
from controlplane.tenants.models import TenantKey
from tests.controlplane.core.people import person, token_of
from tests.controlplane.litellm_admin.calls import Script

pytestmark = pytest.mark.django_db
KEYED = {"Idempotency-Key": "k-1"}


@pytest.fixture
def tenants(admin):
    for name in ("acme", "beta"):
        assert admin.post("/tenants", {"name": name}).status_code == 201


def _by_rest(script):
    return script.post("/tenants/beta/keys", {}, **KEYED)


def _by_litellm(script):
    return Script(script).post("/key/generate", {"team_id": "beta"}, **KEYED)


_SECRET = {_by_rest: "secret", _by_litellm: "key"}


@pytest.mark.parametrize(
    ("was", "less"),
    [
        ({"role": Role.ADMIN}, {"role": Role.OPERATOR}),
        ({"role": Role.ADMIN}, {"role": Role.OPERATOR, "tenants": ["acme"]}),
        ({"role": Role.OPERATOR, "tenants": ["acme", "beta"]}, {"tenants": ["acme"]}),
    ],
    ids=["role", "role and tenants", "tenants"],
)
@pytest.mark.parametrize("shape", [_by_rest, _by_litellm])
def test_a_secret_is_not_shown_again_to_who_may_do_less_now(tenants, was, less, shape):
    user = person(**was)
    script = token_of(user)
    secret = shape(script).json()[_SECRET[shape]]
    assert shape(script).json()[_SECRET[shape]] == secret
    User.objects.filter(pk=user.pk).update(**less)
    again = shape(script)
    assert again.status_code in {404, 422}, again.content
    assert secret not in again.content.decode()
    assert TenantKey.objects.count() == 1


def test_of_a_token_that_was_revoked_nothing_is_answered_again(tenants):
    user = person(Role.ADMIN)
    script = token_of(user)
    secret = script.post("/tenants/beta/keys", {}, **KEYED).json()["secret"]
    ApiToken.objects.filter(user=user).update(revoked_at="2030-01-01T00:00:00Z")
    again = script.post("/tenants/beta/keys", {}, **KEYED)
    assert again.status_code == 401
    assert secret not in again.content.decode()
    assert token_of(user).post("/tenants/beta/keys", {}, **KEYED).json()["secret"] != secret
