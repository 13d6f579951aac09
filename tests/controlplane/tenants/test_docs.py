"""docs/tenants.md: its calls work in some order as they stand, and it names every field."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from controlplane.tenants.models import TenantKey
from controlplane.tenants.services.cache_policies import CachePolicyFields
from controlplane.tenants.services.priority_classes import PriorityClassFields
from controlplane.tenants.services.schedule import HoursFields
from controlplane.tenants.services.session_limits import SessionLimitsFields
from controlplane.tenants.services.tenants import TenantFields

PAGE = (Path(__file__).parents[3] / "docs/tenants.md").read_text()
_CALL = re.compile(r"""rest (?:-X (?P<method>\w+) )?"\$API(?P<path>[^"]+)"(?: \\\n +)?(?: ?-d '(?P<body>[^']+)')?""")


def calls() -> list[tuple[str, str, object]]:
    return [
        (m["method"] or "GET", m["path"], json.loads(m["body"]) if m["body"] else None) for m in _CALL.finditer(PAGE)
    ]


def test_every_call_on_the_page_is_seen():
    assert 0 < len(calls()) == PAGE.count('"$API/')


@pytest.mark.django_db
def test_the_calls_are_answered(admin):
    admin.post("/models", {"name": "BAAI/bge-m3", "max_context_tokens": 8192})
    # What is made first, though the page begins with what is needed first.
    in_order = sorted(calls(), key=lambda call: (call[1].split("?")[0] != "/tenants", call[0] == "PATCH"))
    made = ""
    for method, path, body in in_order:
        path = path.replace("/keys/7", f"/keys/{made}").replace("&wait=applied", "")
        answer = admin.call(method, path, body)
        assert answer.status_code in (200, 201), (method, path, answer.content)
        if path.startswith("/tenants/acme/keys"):
            made = str(TenantKey.objects.get().pk)


@pytest.mark.parametrize(
    "fields", [TenantFields, HoursFields, PriorityClassFields, SessionLimitsFields, CachePolicyFields]
)
def test_every_field_is_named(fields):
    names = {field.alias or name for name, field in fields.model_fields.items()}
    assert {name for name in names if f"`{name}`" not in PAGE} == set()
