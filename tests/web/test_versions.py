"""The pages of versions and of compatibility: who gets which, what is retired, what the rules have against a pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from controlplane.core.models import AuditEntry
from controlplane.fleet.models import CompatibilityRule, Engine, ModelVersion
from controlplane.fleet.services import COMPATIBILITY_RULES
from controlplane.telemetry.receiver import store_path
from controlplane.tenants import services as tenants
from tests.web.conftest import write
from tests.web.hardware import node
from tests.web.test_effects import sent
from tests.web.versioned import passive_version


@pytest.fixture
def version(db: None) -> int:
    return passive_version("chat")


def test_each_version_is_listed_with_its_pools_and_who_is_pinned_to_it(version: int, acme: str, viewer: Client) -> None:
    write(lambda unit: tenants.update(unit, acme, {"pins": {"chat": "chat-v1"}}))
    page = viewer.get("/model-versions/").content.decode()
    assert page.count(">the newest<") == 1
    row = page[page.index(f'id="version-{version}"') :]
    assert f"/tenants/{acme}/" in row
    assert "chat-v1" in row
    assert "/retire/" not in page, "a viewer is not offered what is an admin's"
    assert "chat → chat-v1" in viewer.get(f"/tenants/{acme}/").content.decode()


def test_an_admin_retires_a_passive_version_and_brings_it_back(version: int, admin: Client) -> None:
    assert f"/model-versions/{version}/retire/" in admin.get("/model-versions/").content.decode()
    _apply(admin, f"/model-versions/{version}/retire/", "nobody asks for it")
    assert ModelVersion.objects.get(pk=version).retired_at is not None
    page = admin.get("/model-versions/").content.decode()
    assert f"/model-versions/{version}/bring-back/" in page
    _apply(admin, f"/model-versions/{version}/bring-back/", "they do")
    assert ModelVersion.objects.get(pk=version).retired_at is None
    reasons = AuditEntry.objects.filter(noun="model version", action="update").order_by("pk")
    assert [entry.reason for entry in reasons] == ["nobody asks for it", "they do"]


def test_retiring_says_who_still_uses_its_pools(version: int, admin: Client, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    sent(store_path(), **{"chat-v1": {"acme": 300}, "chat-v2": {"search": 300}})
    said = admin.get(f"/model-versions/{version}/retire/").content.decode()
    assert "In the last hour acme sent" in said


def test_what_keeps_a_version_is_said_on_its_page(version: int, acme: str, admin: Client) -> None:
    write(lambda unit: tenants.update(unit, acme, {"pins": {"chat": "chat-v1"}}))
    answer = admin.get(f"/model-versions/{version}/retire/")
    assert answer.status_code == 409
    assert "is pinned to it" in answer.content.decode()


@pytest.mark.parametrize("path", [f"/model-versions/{10**30}/retire/", "/model-versions/99/bring-back/"])
def test_a_version_that_does_not_exist_is_a_page_that_says_so(path: str, admin: Client) -> None:
    assert admin.get(path).status_code == 404


def test_without_versions_the_page_says_how_to_begin(viewer: Client) -> None:
    assert "No version yet." in viewer.get("/model-versions/").content.decode()


def test_each_pool_shows_what_rules_have_against_it_and_what_is_not_known(viewer: Client) -> None:
    node("rack-1", engines=["llama-a", "llama-b"])
    CompatibilityRule.objects.all().delete()
    rule = {"rule": {"every": ["version", "max_length"]}, "reason": "they differ"}
    write(lambda unit: COMPATIBILITY_RULES.create(unit, "one-version", rule))
    Engine.objects.filter(name="llama-a").update(version="0.11.0")
    Engine.objects.filter(name="llama-b").update(version="0.12.0")
    page = viewer.get("/compatibility/").content.decode()
    assert "its engines differ in version: 0.11.0 on llama-a; 0.12.0 on llama-b; they differ" in page
    assert "1 thing is not known" in page
    assert "stops a rollout" in page
    write(lambda unit: COMPATIBILITY_RULES.update(unit, "one-version", {"enabled": False}))
    assert "No rule is broken." in viewer.get("/compatibility/").content.decode()


def _apply(client: Client, path: str, reason: str) -> None:
    page = client.get(path).content.decode()
    digest = page.split('name="digest" value="')[1].split('"')[0]
    answer = client.post(path, {"step": "apply", "reason": reason, "digest": digest})
    assert answer.status_code == 302, answer.content
