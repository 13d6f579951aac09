"""What a write may do but warns of is said on its review, before it is done."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils.translation import override

from controlplane.routing.services import ROUTES
from controlplane.tenants import services as tenants
from controlplane.web.shown.spoken import spoken
from controlplane.web.templatetags.diffs import warned_place
from tests.web.conftest import digest_of, write
from tests.web.hardware import add_engine
from wire.problems import Problem

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
    said = warned[: warned.index("</ul>")]
    assert "the limits of 1 tenant promise " in said
    assert "its engines may hold 378,000 (138 %)" in said
    assert "/pools/" not in said
    assert "/api/" not in said
    assert "oversubscribed" not in said
    applying = {"weight": "1", "tpm_limit": "60000", "max_parallel_requests": "4", "step": "apply"}
    answer = operator.post(EDIT, {**applying, "digest": digest_of(page), "reason": "they pay for it"})
    assert answer.status_code == 302
    assert tenants.get("acme").max_parallel_requests == 4


@pytest.mark.usefixtures("pool")
def test_a_write_without_a_warning_shows_none(operator: Client) -> None:
    page = review(operator, rpm_limit="600")
    assert 'name="digest"' in page
    assert 'id="warnings"' not in page


@pytest.mark.parametrize(("tenants", "said"), [("1 tenant", "1 kiracı"), ("1,200 tenants", "1.200 kiracı")])
def test_numbers_of_a_warning_are_grouped_as_the_reader_does(tenants: str, said: str) -> None:
    text = (
        f"the limits of {tenants} promise 4,194,304 tokens of context in pool 'chat', and its engines may hold 378,000 "
        "(138 %); tenants without a bound: 1,000; lower limits or add engines"
    )
    with override("tr"):
        in_turkish = spoken(text)
    for part in (said, "4.194.304", "378.000", "1.000"):
        assert part in in_turkish


@pytest.mark.parametrize(
    ("path", "message", "place"),
    [
        ("/pools/chat", "no engine of pool 'chat' takes work any more", ""),
        ("/engines/llama~1a", "this engine would go", "engine llama/a"),
        ("/tenants", "3 of 4 would go", ""),
        ("/enabled", "it is switched off", ""),
        ("/groups/0/rules/1", "left out: no rule", "/groups/0/rules/1"),
    ],
)
def test_a_warning_is_said_of_what_it_does_not_name_itself(path: str, message: str, place: str) -> None:
    assert warned_place(Problem(path, "risk", message)) == place
