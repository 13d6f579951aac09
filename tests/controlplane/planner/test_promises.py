"""Can a tenant be promised a rate: from live limits, engines and residence, with the oversubscription it makes."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from controlplane.configs.models import PoolMeans
from controlplane.planner import promises
from controlplane.telemetry import query
from controlplane.telemetry.results import Sample
from tests.controlplane.conftest import Rest

# Of 100,000 tokens 90 % may be admitted.
CAPACITY, ADMISSIBLE = 100_000, 90_000
RESIDENCE_SECONDS = 12.0


@pytest.fixture
def chat(admin: Rest) -> Rest:
    """One pool; `acme` has 60,000 tokens a minute, which are 12,000 alive at once; `beta` 300,000, which are 60,000."""
    for path, body in (
        ("/models", {"name": "org/m-1", "max_context_tokens": 8192}),
        ("/pools", {"name": "chat", "model": "org/m-1"}),
        ("/engines", {
            "name": "e-1", "url": "http://10.0.0.1:8000", "pool": "chat", "served_model": "m",
            "kv_capacity_tokens": CAPACITY,
        }),
        ("/routes", {"name": "all", "pools": {"chat": 1000}}),
        ("/tenants", {"name": "acme", "tpm_limit": 60_000}),
        ("/tenants", {"name": "beta", "tpm_limit": 300_000}),
    ):  # fmt: skip
        assert admin.post(path, body).status_code == 201
    PoolMeans.objects.create(
        pool="chat", residence_seconds=RESIDENCE_SECONDS, context_tokens=2000.0, measured_at=timezone.now()
    )
    return admin


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {promises.NOW_QUERY: 90_000.4, promises.BUSIEST_QUERY: 400_000.0}

    def instant(promql: str, at_ms: int, seconds_max: float | None = None) -> list[Sample]:
        return [Sample({"pool": "chat"}, at_ms, values[promql])]

    monkeypatch.setattr(query, "instant", instant)


def asked(rest: Rest, tpm: int, tenant: str = "acme") -> Any:
    answer = rest.get(f"/plans/promise?tenant={tenant}&tpm={tpm}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_what_fits_beside_all_other_promises_can_be_promised(chat: Rest) -> None:
    answer = asked(chat, 150_000)
    assert (answer["verdict"], answer["tpm_now"]) == ("yes", 60_000)
    assert answer["pools"] == [
        {
            "pool": "chat",
            "verdict": "yes",
            "admissible_tokens": ADMISSIBLE,
            "mean_residence_seconds": RESIDENCE_SECONDS,
            "reaches_permille": 1000,
            "share_tokens": 30_000,
            "basis": "residence",
            "promised_tokens_now": 72_000,
            "promised_permille_now": 800,
            "promised_tokens": 90_000,
            "promised_permille": 1000,
            "missing_tokens": 0,
            "tenants_without_bound": 0,
            "largest_tpm": 150_000,
            "served_tpm_now": 90_000,
            "served_tpm_busiest": 400_000,
        }
    ]
    assert answer["says"] == "pool 'chat': 90000 of 90000 tokens would be promised (100 %)"


def test_200k_tpm_are_too_many_and_it_says_by_how_much_and_what_could_be(chat: Rest) -> None:
    answer = asked(chat, 200_000)
    (pool,) = answer["pools"]
    assert (answer["verdict"], pool["promised_permille"], pool["missing_tokens"]) == ("no", 1111, 10_000)
    assert answer["largest_tpm"] == 150_000
    assert answer["says"] == "pool 'chat': 100000 of 90000 tokens would be promised (111.1 %), 10000 too many"
    # What it says could be promised, can be.
    assert asked(chat, 150_000)["verdict"] == "yes"
    assert asked(chat, 150_001)["verdict"] == "no"


def test_asking_changes_nothing(chat: Rest) -> None:
    before = chat.get("/capacity").json()
    asked(chat, 200_000)
    assert chat.get("/tenants/acme").json()["tpm_limit"] == 60_000
    assert chat.get("/capacity").json() == before


def test_without_an_engine_s_capacity_it_is_not_known(chat: Rest) -> None:
    chat.patch("/engines/e-1", {"kv_capacity_tokens": None})
    answer = asked(chat, 200_000)
    assert (answer["verdict"], answer["largest_tpm"]) == ("unknown", None)
    assert "not told how much KV cache" in answer["says"]


def test_without_a_residence_a_rate_bounds_nothing(chat: Rest) -> None:
    PoolMeans.objects.all().delete()
    answer = asked(chat, 200_000)
    assert answer["verdict"] == "unknown"
    assert answer["pools"][0]["basis"] == "no_residence"
    assert "was not measured" in answer["says"]


def test_tenants_without_a_bound_are_named(chat: Rest) -> None:
    chat.post("/tenants", {"name": "lab"})
    answer = asked(chat, 60_000)
    assert answer["pools"][0]["tenants_without_bound"] == 1
    assert answer["says"].endswith("tenants without a bound are in no sum: 1")


def test_a_tenant_that_reaches_no_pool_is_promised_nothing(chat: Rest) -> None:
    chat.patch("/tenants/acme", {"blocked": True})
    answer = asked(chat, 200_000)
    assert (answer["verdict"], answer["pools"]) == ("unknown", [])
    assert "no route leads" in answer["says"]


def test_without_metrics_it_is_answered_without_what_is_served(chat: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(promql: str, at_ms: int, seconds_max: float | None = None) -> list[Sample]:
        raise query.QueryError("away")

    monkeypatch.setattr(query, "instant", away)
    answer = asked(chat, 100_000)
    assert (answer["verdict"], answer["pools"][0]["served_tpm_now"]) == ("yes", None)


@pytest.mark.parametrize(
    ("query_text", "status"),
    [("tenant=nobody&tpm=1", 404), ("tenant=acme", 422), ("tpm=5", 422), ("tenant=acme&tpm=-1", 422),
     ("tenant=acme&tpm=NaN", 422), ("tenant=&tpm=1", 422), ("tenant=a%00b&tpm=1", 422)],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(chat: Rest, query_text: str, status: int) -> None:
    assert chat.get(f"/plans/promise?{query_text}").status_code == status
