"""The page of caches: what policies allow, how often caches answer, what engines need not compute, and the forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.changes import UnitOfWork
from controlplane.fleet.services import MODELS
from controlplane.telemetry.receiver import store_path
from controlplane.tenants import services as tenants
from controlplane.tenants.models import CachePolicy
from controlplane.tenants.services import CACHE_POLICIES
from controlplane.web.measured import Numbers
from controlplane.web.shown.caches import hit_lines
from tests.web.asking import applied, page, part
from tests.web.conftest import write
from tests.web.traffic import measured

pytestmark = pytest.mark.django_db
CACHES = "/caches/"


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return store_path()


@pytest.fixture
def faq() -> None:
    def make(unit: UnitOfWork) -> None:
        MODELS.create(unit, "embedder", {"max_context_tokens": 512})
        CACHE_POLICIES.create(unit, "faq", {"exact": {}, "semantic": {"embedding_model": "embedder"}})
        tenants.create(unit, "acme", {"cache_policy": "faq"})

    write(make)


def test_policies_say_what_they_allow_and_who_has_them(faq: None, viewer: Client) -> None:
    policies = part(page(viewer, CACHES), "policies")
    assert "for 60 min, 10,000 answers at most" in policies
    assert "alike from 95 % by embedder; verified answers alone" in policies.replace("\n", "")
    assert 'href="/tenants/acme/"' in policies
    assert "/edit/" not in policies


def test_hits_savings_and_wrong_hits_stand_by_tenant_and_model(own_store: Path, viewer: Client) -> None:
    whose = ("cache=semantic", "tenant=acme", "model=m")
    of_acme = ("tenant=acme", "pool=chat")
    measured(
        own_store,
        {("headworks_gateway_cache_bytes",): 5.0 * (1 << 20), ("headworks_gateway_cache_answers", "cache=exact"): 12.0},
        {
            ("headworks_gateway_cache_lookups_total", *whose): 400.0,
            ("headworks_gateway_cache_hits_total", *whose): 100.0,
            ("headworks_gateway_cache_wrong_hits_total", *whose): 5.0,
            ("headworks_gateway_prompt_tokens_total", *of_acme): 30_000.0,
            ("headworks_gateway_generation_tokens_total", *of_acme): 10_000.0,
            ("headworks_gateway_e2e_seconds_count", *of_acme): 100.0,
        },
    )
    answer = viewer.get(CACHES)
    (line,) = answer.context["caches_now"].hits.first
    # Counters are drawn out to the window's ends.
    assert (line.lookups, line.percent, line.wrong) == (pytest.approx(400, rel=0.02), pytest.approx(25, rel=0.02), 5)
    # Of 400 tokens a request, a hundred times.
    assert line.tokens_saved == pytest.approx(40_000, rel=0.02)
    hits = part(answer.content.decode(), "hits")
    assert f"{line.tokens_saved:,}" in hits
    assert "5.0 %" in hits
    assert "exact: 12 answers kept" in hits
    assert "5 MiB" in hits


def test_prefix_caches_stand_by_pool(own_store: Path, viewer: Client) -> None:
    measured(
        own_store,
        {},
        {
            ("headworks_engine_prefix_cache_queries_tokens_total", "pool=chat", "engine=a"): 800.0,
            ("headworks_engine_prefix_cache_hits_tokens_total", "pool=chat", "engine=a"): 600.0,
        },
    )
    prefixes = part(page(viewer, CACHES), "prefixes")
    assert 'href="/pools/chat/"' in prefixes
    assert "75.0 %" in prefixes


def test_a_policy_is_made_changed_and_deleted(operator: Client) -> None:
    write(lambda unit: MODELS.create(unit, "embedder", {"max_context_tokens": 512}))
    applied(operator, "/caches-new/", {"name": "faq", "exact": "on", "exact_ttl_ms": "60", "exact_max_entries": ""})
    row = CachePolicy.objects.get()
    assert row.exact == {"ttl_ms": 60_000, "max_entries": 10_000}
    assert row.semantic is None
    meaning = {
        "semantic": "on", "semantic_embedding_model": "embedder", "semantic_similarity_permille": "97.5",
        "semantic_time_bound": "today\nnow",
    }  # fmt: skip
    applied(operator, "/caches/faq/edit/", meaning)
    row = CachePolicy.objects.get()
    assert row.exact is None
    assert row.semantic is not None
    assert (row.semantic["similarity_permille"], row.semantic["time_bound"]) == (975, ["today", "now"])
    assert row.semantic["only_verified"] is False
    form = operator.get("/caches/faq/edit/").context["form"]
    assert form["semantic_time_bound"].value() == "today\nnow"
    applied(operator, "/caches/faq/delete/", {})
    assert not CachePolicy.objects.exists()


def test_a_cache_without_its_embedding_model_is_refused_at_that_field(operator: Client) -> None:
    answer = operator.post("/caches-new/", {"name": "faq", "semantic": "on", "step": "review"})
    assert answer.status_code == 422
    assert answer.context["form"].errors["semantic_embedding_model"]


def test_the_list_asks_no_more_where_there_are_many(viewer: Client) -> None:
    def make(unit: UnitOfWork) -> None:
        for number in range(30):
            CACHE_POLICIES.create(unit, f"c-{number}", {"exact": {}})
            tenants.create(unit, f"t-{number}", {"cache_policy": f"c-{number}"})

    write(make)
    with CaptureQueriesContext(connection) as queries:
        page(viewer, CACHES)
    assert len(queries) <= 10, [each["sql"][:120] for each in queries]


def test_without_anything_it_says_what_a_policy_is_for(viewer: Client) -> None:
    text = page(viewer, CACHES)
    assert "No cache policy yet." in text
    assert "No request was looked up." in text
    assert "No engine told of its prefix cache." in text


_COUNTS = st.floats(0, 1e6)


@given(_COUNTS, _COUNTS, _COUNTS)
def test_a_hit_rate_is_a_part_of_the_whole(lookups: float, hits: float, wrong: float) -> None:
    owner = ("exact", "acme", "m")
    found = hit_lines(Numbers({"lookups": {owner: lookups}, "hits": {owner: hits}, "wrong_hits": {owner: wrong}}))
    assert len(found) == (round(lookups) > 0)
    assert all(0 <= line.percent <= 100 and line.tokens_saved is None for line in found)
