"""The page of single sign-on: what it tells, what it judges of a provider, and which failures it knows."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests
from django.test import Client

from controlplane.core.models import AuditEntry
from controlplane.web.models import SignOnFailure
from controlplane.web.shown import sign_on
from controlplane.web.shown.sign_on import Wanted, judged, why_away
from tests.controlplane.conftest import Rest
from tests.controlplane.core.people import person, token_of
from tests.services import free_port
from tests.web.test_oidc import CLIENT_SECRET, configured, log_in, person_at, provider, text_of  # noqa: F401 - fixtures

PAGE, CHECK = "/single-sign-on/", "/single-sign-on/check/"
NEED = Wanted(
    ("openid", "groups"), ("RS256", "ES256"), ("preferred_username", "groups"), has_secret=True, gives_roles=True
)
GOOD = {
    "response_types_supported": ["code"],
    "code_challenge_methods_supported": ["plain", "S256"],
    "scopes_supported": ["openid", "groups"],
    "claims_supported": ["sub", "preferred_username", "groups"],
    "id_token_signing_alg_values_supported": ["RS256"],
    "token_endpoint_auth_methods_supported": ["client_secret_post"],
}
KEYS = [{"kty": "RSA", "use": "sig", "alg": "RS256"}]


@pytest.fixture
def script(admin: Client) -> Rest:
    return token_of(person("admin"))  # type: ignore[arg-type]


def test_a_provider_that_has_all_is_good() -> None:
    assert {finding.verdict for finding in judged(GOOD, KEYS, NEED)} == {"good"}


@pytest.mark.parametrize(
    ("document", "need", "verdict", "says"),
    [
        ({"response_types_supported": ["id_token"]}, {}, "bad", "It gives no codes"),
        ({"code_challenge_methods_supported": None}, {}, "wait", "does not say that it checks PKCE"),
        ({"scopes_supported": ["openid"]}, {}, "wait", "no groups"),
        ({"claims_supported": ["sub"]}, {}, "wait", "no preferred_username, groups"),
        ({"id_token_signing_alg_values_supported": ["HS256"]}, {}, "bad", "It signs with HS256"),
        ({"token_endpoint_auth_methods_supported": ["private_key_jwt"]}, {}, "bad", "private_key_jwt alone"),
        ({}, {"has_secret": False}, "bad", "here it is sent as none"),
        ({}, {"gives_roles": False}, "bad", "HEADWORKS_OIDC_ROLES is empty"),
        ({}, {"algorithms": ("EdDSA",)}, "bad", "None of its keys"),
        # What is of another form than it should be is as if it were not there.
        ({"response_types_supported": "code", "scopes_supported": {"a": 1}}, {}, "bad", "It gives no codes"),
    ],
)
def test_what_a_provider_lacks_is_named(
    document: dict[str, Any], need: dict[str, Any], verdict: str, says: str
) -> None:
    found = [each for each in judged({**GOOD, **document}, KEYS, NEED._replace(**need)) if each.verdict != "good"]
    assert any(each.verdict == verdict and says in each.says for each in found), found


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (requests.exceptions.SSLError("self-signed"), "HEADWORKS_OIDC_CA_FILE"),
        (requests.exceptions.ConnectTimeout(), "firewall"),
        (requests.exceptions.ConnectionError(), "nobody listens"),
        (requests.exceptions.HTTPError(response=type("R", (), {"status_code": 404})()), "answered 404"),
    ],
)
def test_why_it_is_away_is_said_with_what_would_mend_it(error: OSError, says: str) -> None:
    assert says in why_away("https://id.example", error)


def test_without_a_provider_the_page_says_how_to_begin(admin: Client, viewer: Client) -> None:
    html = viewer.get(PAGE).content.decode()
    assert "No provider is configured." in html
    assert "http://testserver/log-in/provider/back/" in html
    assert CHECK not in html
    assert admin.post(CHECK).status_code == 409


def test_the_page_shows_the_settings_and_never_the_secret(configured: str, admin: Client, viewer: Client) -> None:  # noqa: F811
    html = text_of(viewer.get(PAGE))
    for shown in (configured, "Lab ID", "HEADWORKS_OIDC_CLIENT_SECRET", "acme-ops", "preferred_username"):
        assert shown in html
    assert CHECK not in html
    assert f'action="{CHECK}"' in text_of(admin.get(PAGE))


def test_asking_the_provider_says_what_it_is(configured: str, admin: Client) -> None:  # noqa: F811
    html = text_of(admin.post(CHECK))
    assert f"{configured}/.well-known/openid-configuration was read." in html
    # An address alone asks nobody.
    assert "was read." not in text_of(admin.get(CHECK))
    assert not AuditEntry.objects.exists()


def test_a_provider_that_is_away_is_said_to_be(configured: str, admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("HEADWORKS_OIDC_ISSUER", f"http://localhost:{free_port()}")
    assert "cannot be reached" in text_of(admin.post(CHECK))


def test_rest_tells_the_same(configured: str, script: Rest) -> None:  # noqa: F811
    told = script.get("/single-sign-on")
    assert CLIENT_SECRET not in told.content.decode()
    answer = told.json()
    assert (answer["issuer"], answer["has_client_secret"]) == (configured, True)
    assert answer["roles"]["acme-ops"] == {"role": "operator", "tenants": ["acme"]}
    found = script.post("/single-sign-on/check", {}).json()["findings"]
    assert found[0]["verdict"] == "good"


def test_who_got_in_and_who_did_not_stand_on_the_page(configured: str, viewer: Client) -> None:  # noqa: F811
    person_at(configured, "grace", groups=["staff"])
    person_at(configured, "mallory", groups=["nothing"])
    assert log_in(Client(), "grace").status_code == 302
    assert log_in(Client(), "mallory").status_code == 403
    Client().get("/log-in/provider/back/?error=<script>alert(1)</script>")
    html = text_of(viewer.get(PAGE))
    assert "grace" in html[html.index('id="log-ins"') :]
    failed = html[html.index('id="failures"') : html.index('id="log-ins"')]
    assert "stands in HEADWORKS_OIDC_ROLES" in failed
    assert "it let nobody in: ?" in failed
    assert "127.0.0.1" in failed
    assert "<script>alert" not in html


def test_a_flood_of_failures_is_kept_in_part(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(sign_on.FAILURES_A_MINUTE + 5):
        sign_on.note_failure("10.0.0.1", json.dumps(number))
    assert SignOnFailure.objects.count() == sign_on.FAILURES_A_MINUTE
    monkeypatch.setattr(sign_on, "FAILURES_KEPT", 3)
    monkeypatch.setattr(sign_on, "FAILURES_A_MINUTE", 100)
    sign_on.note_failure("10.0.0.1", "newest")
    assert next(iter(sign_on.failures())).why == "newest"
    assert SignOnFailure.objects.count() == 3
