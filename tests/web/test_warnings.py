"""What a write may do but warns of is said on its review, before it is done."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from controlplane.routing.services import ROUTES
from controlplane.tenants import services as tenants
from tests.web.conftest import digest_of, write
from tests.web.hardware import add_engine

EDIT = "/tenants/acme/edit/"


@pytest.fixture
def pool(acme: str) -> None:
    """An engine that may hold 378,000 tokens, and a route that leads all tenants to it."""
    add_engine("llama-a", None)
    write(lambda unit: ROUTES.create(unit, "all", {"pools": {"chat": 1000}}))


def review(client: Client, **fields: Any) -> str:
    return client.post(EDIT, {"weight": "1", "tpm_limit": "60000", **fields, "step": "review"}).content.decode()


@pytest.mark.usefixtures("pool")
def test_limits_that_engines_cannot_hold_are_named_with_numbers_and_can_be_set(operator: Client) -> None:
    page = review(operator, max_parallel_requests="4")
    warned = page[page.index('id="warnings"') :]
    assert "<code>/pools/chat</code>" in warned
    assert "its engines may hold 378000 (138 %)" in warned
    applying = {"weight": "1", "tpm_limit": "60000", "max_parallel_requests": "4", "step": "apply"}
    answer = operator.post(EDIT, {**applying, "digest": digest_of(page), "reason": "they pay for it"})
    assert answer.status_code == 302
    assert tenants.get("acme").max_parallel_requests == 4


@pytest.mark.usefixtures("pool")
def test_a_write_without_a_warning_shows_none(operator: Client) -> None:
    page = review(operator, rpm_limit="600")
    assert 'name="digest"' in page
    assert 'id="warnings"' not in page
