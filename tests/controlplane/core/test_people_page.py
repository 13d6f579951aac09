"""docs/people.md: its calls work as they stand, its settings are read as shown, its names are those there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from controlplane.core import oidc_rows
from controlplane.core.scope import known_scopes
from controlplane.core.users import UserFields
from controlplane.tenants.own_limits import LOWERED_BY_THEIR_OWN
from controlplane.tenants.services.tenants import TenantFields

PAGE = (Path(__file__).parents[3] / "docs/people.md").read_text()
CALLS = re.findall(
    r"curl [^\n]*?(?:-X (\w+) )?-H 'Content-Type: application/json' \\\n +--data '([^']+)' "
    r'(?:\\\n +)?"https://headworks\.example/api/v1([^"]+)"',
    PAGE,
)


def test_every_call_on_the_page_is_seen():
    assert len(CALLS) == PAGE.count("curl ") > 0


def test_the_calls_are_answered(admin):
    admin.post("/users", {"username": "omar", "role": "operator", "password": "correct horse battery"})
    for method, body, path in CALLS:
        answer = admin.call(method or "POST", path, json.loads(body.replace("…", "correct horse battery")))
        assert answer.status_code in (200, 201), (path, answer.content)


def test_what_people_of_a_tenant_may_lower_are_limits_of_a_tenant_and_all_are_named():
    assert set(LOWERED_BY_THEIR_OWN) <= TenantFields.model_fields.keys()
    assert all(f"`{name}`" in PAGE for name in LOWERED_BY_THEIR_OWN)


def test_fields_and_scopes_are_those_there_are(admin):
    # Reads the site's addresses, and with them the scopes.
    assert admin.get("/me").status_code == 200
    assert {"tenants", "is_active"} <= UserFields.model_fields.keys()
    for name in ("tenants", "keys", "routes", "metrics", "users", "API tokens"):
        assert f"`{name}`" in PAGE
        assert name in known_scopes


@pytest.mark.parametrize(("name", "text"), re.findall(r"^(HEADWORKS_OIDC_[A-Z_]+)=(.+)$", PAGE, re.MULTILINE))
def test_the_settings_of_the_example_are_taken(name, text):
    if name.endswith("_FILE"):
        name = name.removesuffix("_FILE")
        assert any(setting.name == name and setting.in_file for setting in oidc_rows.SETTINGS)
        return
    (setting,) = [setting for setting in oidc_rows.SETTINGS if setting.name == name]
    setting.read({name: text.strip("'\"")})
