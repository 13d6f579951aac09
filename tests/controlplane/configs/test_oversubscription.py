"""What pools can hold and what limits promise of it: the view, the warning of a write, and its cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from controlplane.configs import pool_means
from controlplane.configs.current import current
from controlplane.configs.heads import Heads
from controlplane.configs.hub import heads
from controlplane.configs.ledger import Ledger, Promised
from controlplane.configs.models import Fragment, PoolMeans, Revision
from controlplane.configs.oversubscription import SECTIONS, warnings_of
from controlplane.configs.publisher import publish
from controlplane.configs.tasks import measure_pools
from controlplane.telemetry import query
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.results import Sample
from controlplane.telemetry.store.writer import Owner
from policy.promises import Means
from tests.controlplane.configs.conftest import ENGINE
from tests.controlplane.conftest import Rest
from tests.controlplane.telemetry.filling import named, store

# 100,000 tokens of which 90 % may be admitted; contexts of MODEL are 8,192 tokens at most.
CAPACITY = 100_000
CONTEXT = 8_192


@pytest.fixture
def pool(fleet: Rest) -> Rest:
    """The fleet, its engine's capacity known; `acme` may hold one context, `labs` two."""
    fleet.patch("/engines/e-1", {"kv_capacity_tokens": CAPACITY})
    fleet.patch("/tenants/acme", {"max_parallel_requests": 1})
    assert fleet.post("/tenants", {"name": "labs", "max_parallel_requests": 2}).status_code == 201
    return fleet


def capacity(rest: Rest, **query: int) -> Any:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    answer = rest.get(f"/capacity?{asked}")
    assert answer.status_code == 200, answer.content
    items = answer.json()["items"]
    return next(item for item in items if item["pool"] == "short")


def warned(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code in (200, 201), answer.content
    return [(each["path"], each["rule"]) for each in answer.json()["warnings"]]


OVERSUBSCRIBED = [("/pools/short", "oversubscribed")]


def measured(seconds: float | None, context: float | None = None, ago: timedelta = timedelta()) -> None:
    PoolMeans.objects.create(
        pool="short", residence_seconds=seconds, context_tokens=context, measured_at=timezone.now() - ago
    )


def test_the_view_shows_capacity_promises_and_shares(pool: Rest) -> None:
    assert capacity(pool) == {
        "pool": "short",
        "model": "org/m-1",
        "engines": {"all": 1, "cordoned": 0, "unknown": 0},
        "capacity_tokens": CAPACITY,
        "admissible_tokens": 90_000,
        "ceilings": {},
        "mean_residence_seconds": None,
        "mean_context_tokens": None,
        "promised_tokens": 3 * CONTEXT,
        "promised_permille": 3 * CONTEXT * 1000 // 90_000,
        "oversubscribed": False,
        "tenants_in_all": 2,
        "tenants_without_bound": 0,
        "tenants": [
            {
                "tenant": name,
                "promised_tokens": sequences * CONTEXT,
                "promised_permille": sequences * CONTEXT * 1000 // 90_000,
                "basis": "longest_context",
                "reaches_permille": 1000,
                "longest_context_tokens": CONTEXT,
            }
            for name, sequences in (("labs", 2), ("acme", 1))
        ],
    }


def test_a_measured_residence_bounds_a_rate(pool: Rest) -> None:
    measured(6.0)
    shown = capacity(pool)
    assert shown["mean_residence_seconds"] == 6.0
    # 60,000 tokens a minute that stay 6 s each.
    assert [share for share in shown["tenants"] if share["basis"] == "residence"] == [
        {
            "tenant": "acme",
            "promised_tokens": 6_000,
            "promised_permille": 66,
            "basis": "residence",
            "reaches_permille": 1000,
            "longest_context_tokens": CONTEXT,
        }
    ]


def test_a_measured_context_takes_the_place_of_the_longest(pool: Rest) -> None:
    measured(None, 1_000.5)
    shown = capacity(pool)
    assert shown["mean_context_tokens"] == 1_000.5
    assert [(share["promised_tokens"], share["basis"]) for share in shown["tenants"]] == [
        (2 * 1_001, "mean_context"),
        (1_001, "mean_context"),
    ]


def test_an_old_measurement_is_none(pool: Rest) -> None:
    measured(6.0, 500.0, pool_means.WINDOW + timedelta(minutes=1))
    shown = capacity(pool)
    assert (shown["mean_residence_seconds"], shown["mean_context_tokens"]) == (None, None)


def test_what_is_unknown_is_null(fleet: Rest) -> None:
    shown = capacity(fleet)
    assert (shown["capacity_tokens"], shown["admissible_tokens"], shown["oversubscribed"]) == (None, None, None)
    assert shown["promised_permille"] is None
    assert (shown["promised_tokens"], shown["tenants_without_bound"]) == (0, 1)
    # Its only limit is one per minute, and how long requests stay is not known.
    assert [(share["promised_tokens"], share["basis"]) for share in shown["tenants"]] == [(None, "no_residence")]


def test_a_cordoned_engine_holds_nothing(pool: Rest) -> None:
    pool.post("/engines", {**ENGINE, "name": "e-2", "url": "http://10.0.0.2:8000", "kv_capacity_tokens": 50_000})
    assert capacity(pool)["capacity_tokens"] == 150_000
    pool.post("/engines/e-2/cordon")
    shown = capacity(pool)
    assert (shown["capacity_tokens"], shown["engines"]) == (CAPACITY, {"all": 2, "cordoned": 1, "unknown": 0})


def test_only_the_largest_shares_are_listed_if_asked(pool: Rest) -> None:
    assert [share["tenant"] for share in capacity(pool, tenants=1)["tenants"]] == ["labs"]
    assert capacity(pool, tenants=0)["tenants_in_all"] == 2
    assert pool.get("/capacity?tenants=100000").status_code == 422


def test_promising_more_than_can_be_held_is_a_warning_with_numbers(pool: Rest) -> None:
    answer = pool.patch("/tenants/acme", {"max_parallel_requests": 10})
    assert warned(answer) == OVERSUBSCRIBED
    message = answer.json()["warnings"][0]["message"]
    for number in (f"{12 * CONTEXT:,}", "90,000", "2 tenants", "109 %"):
        assert number in message
    assert capacity(pool)["oversubscribed"] is True


def test_what_fits_is_no_warning(pool: Rest) -> None:
    assert warned(pool.patch("/tenants/acme", {"max_parallel_requests": 8})) == []


def test_a_dry_run_warns_as_well_and_leaves_nothing(pool: Rest) -> None:
    assert warned(pool.patch("/tenants/acme?dry_run=true", {"max_parallel_requests": 10})) == OVERSUBSCRIBED
    assert capacity(pool)["promised_tokens"] == 3 * CONTEXT
    assert warned(pool.patch("/tenants/acme", {"max_parallel_requests": 2})) == []


def test_only_the_write_that_makes_it_worse_warns(pool: Rest) -> None:
    pool.patch("/tenants/acme", {"max_parallel_requests": 20})
    assert warned(pool.patch("/tenants/acme", {"max_parallel_requests": 19})) == []
    assert warned(pool.patch("/tenants/acme", {"weight": 5})) == []
    assert warned(pool.patch("/tenants/labs", {"max_parallel_requests": 3})) == OVERSUBSCRIBED


def test_every_kind_of_write_that_bears_on_it_warns(pool: Rest) -> None:
    pool.patch("/tenants/acme", {"max_parallel_requests": 8})
    engine = {"name": "e-2", "url": "http://10.0.0.2:8000", "pool": "long", "served_model": "m"}
    pool.post("/pools", {"name": "long", "model": "org/m-1"})
    pool.post("/engines", {**engine, "kv_capacity_tokens": 10})
    assert warned(pool.patch("/pools/short", {"kv_admit_permille": 500})) == OVERSUBSCRIBED
    pool.patch("/pools/short", {"kv_admit_permille": 900})
    assert warned(pool.patch("/engines/e-1", {"kv_capacity_tokens": 90_000})) == OVERSUBSCRIBED
    pool.patch("/engines/e-1", {"kv_capacity_tokens": CAPACITY})
    assert warned(pool.post("/engines/e-1/cordon")) == [("/pools/short", "no_working_engine"), *OVERSUBSCRIBED]
    pool.post("/engines/e-1/uncordon")
    assert warned(pool.patch("/models/org/m-1", {"max_context_tokens": 16_384, "max_tokens": 16_000})) == OVERSUBSCRIBED
    pool.patch("/models/org/m-1", {"max_context_tokens": CONTEXT})
    assert warned(pool.patch("/routes/all", {"pools": {"long": 1000}})) == [("/pools/long", "oversubscribed")]


def test_what_no_engine_has_said_is_no_warning(fleet: Rest) -> None:
    assert warned(fleet.patch("/tenants/acme", {"max_parallel_requests": 10_000})) == []


def test_a_pool_that_has_no_engine_yet_is_no_warning(pool: Rest) -> None:
    pool.post("/pools", {"name": "long", "model": "org/m-1"})
    assert warned(pool.patch("/routes/all", {"pools": {"long": 1000}})) == []


def test_what_another_process_published_counts(pool: Rest, newest: Callable[[], Heads]) -> None:
    """The newest revision in memory is an old one; two came after it, and something waits."""
    newest()
    pool.patch("/tenants/acme", {"max_parallel_requests": 5})
    publish_elsewhere()
    pool.post("/tenants", {"name": "more", "max_parallel_requests": 1})
    pool.delete("/tenants/labs")
    publish_elsewhere()
    pool.post("/tenants", {"name": "waits", "max_parallel_requests": 1})
    assert heads.newest is not None
    assert set(heads.newest.content["tenants"]) == {"acme", "labs"}
    known = current(SECTIONS)
    assert {section: known.section(section) for section in SECTIONS} == {
        section: dict(Fragment.objects.filter(section=section, content__isnull=False).values_list("key", "content"))
        for section in SECTIONS
    }
    assert capacity(pool)["promised_tokens"] == 7 * CONTEXT


def publish_elsewhere() -> None:
    """Publish what waits as another process would: this one's memory stays as it is."""
    publish()


def test_a_process_that_follows_no_revisions_sees_the_same(pool: Rest, newest: Callable[[], Heads]) -> None:
    newest()
    shown = capacity(pool)
    Heads.__init__(heads, heads._decrypt)
    assert capacity(pool) == shown


@pytest.mark.parametrize("patch", [5, [], {"tenants": 5}])
def test_a_damaged_revision_hides_nothing(pool: Rest, newest: Callable[[], Heads], patch: Any) -> None:
    """Neither is it mended here: that is the publisher's to do, and to tell of."""
    newest()
    pool.patch("/tenants/acme", {"max_parallel_requests": 5})
    publish_elsewhere()
    Revision.objects.filter(number=2).update(patch=patch)
    assert capacity(pool)["promised_tokens"] == 7 * CONTEXT
    assert heads.damaged is None


def test_the_ledger_that_follows_is_as_one_that_begins(pool: Rest, newest: Callable[[], Heads]) -> None:
    following = Ledger()
    for path, body in (
        ("/tenants/acme", {"max_parallel_requests": None}),
        ("/tenants/labs", {"blocked": True}),
        ("/tenants/labs", {"blocked": False, "tpm_limit": 1_000}),
        ("/routes/all", {"match": {"tenants": ["labs"]}}),
        ("/tenants/acme", {"tpm_limit": None}),
    ):
        pool.patch(path, body)
        if "routes" in path:
            newest()
        now = current(SECTIONS)
        for means in ({"short": Means(3.0, 700.0)}, {}):
            assert settled(following.promised(now, means)) == settled(Ledger().promised(now, means))
            assert following.shares(now, means) == Ledger().shares(now, means)


def settled(promised: dict[str, Promised]) -> dict[str, Promised]:
    """Without pools that nobody reaches any more."""
    return {pool: each for pool, each in promised.items() if each.tenants}


def test_a_change_of_one_among_ten_thousand_costs_little(pool: Rest, newest: Callable[[], Heads]) -> None:
    """Well below the 100 ms of work that a quota change may take; the first use reads all of them once."""
    Fragment.objects.bulk_create(
        Fragment(
            section="tenants", key=f"t-{i}", content={"weight": 1, "tpm_limit": 600 + i, "max_parallel_requests": 1}
        )
        for i in range(10_000)
    )
    newest()
    assert warned(pool.patch("/tenants/acme", {"max_parallel_requests": 2})) == OVERSUBSCRIBED

    before = {"weight": 1, "max_parallel_requests": 2}
    spent = []
    for number in range(5):
        began = time.process_time()
        warnings_of({("tenants", "acme"): (before, {**before, "max_parallel_requests": 3 + number})})
        spent.append(time.process_time() - began)
    assert min(spent) < 0.05, spent


RECORDED = {
    # Seconds and requests a second, tokens and requests a second: 5 s and 1,200 tokens each.
    "headworks_engine_e2e_seconds_sum": (6.0, 9.0),
    "headworks_engine_e2e_seconds_count": (2.0, 1.0),
    "headworks_gateway_prompt_tokens": (1_000.0, 2_000.0),
    "headworks_gateway_generation_tokens": (200.0, 400.0),
}


def record(now_ms: int, pool: str = "short") -> None:
    """50 minutes as they would be recorded: the first half of them with the one value, then with the other."""
    minutes = [(now_ms - minute * 60_000, minute <= 25) for minute in range(50, 0, -1)]
    values: dict[str, tuple[tuple[float, float], dict[str, str]]] = {
        name: (pair, {}) for name, pair in RECORDED.items()
    }
    values["headworks_gateway_requests"] = ((1.0, 2.0), {"outcome": "ok", "reason": "none"})
    series = [
        named(f"pool:{name}:rate1m", [(at_ms, pair[late]) for at_ms, late in minutes], pool=pool, **labels)
        for name, (pair, labels) in values.items()
    ]
    refused = {"outcome": "refused", "reason": "tpm_limit"}
    series.append(named("pool:headworks_gateway_requests:rate1m", [(now_ms - 60_000, 9.0)], pool=pool, **refused))
    store(store_path(), series, Owner("node", "n-1"))


def test_means_are_read_from_recorded_series(db: None, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    record(int(time.time()) * 1000)
    assert measure_pools() == 1
    assert pool_means.means_now().keys() == {"short"}
    assert pool_means.means_now()["short"] == pytest.approx((5.0, 1_200.0))


def test_what_was_not_measured_for_long_is_forgotten(db: None, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    measured(6.0, None, pool_means.WINDOW * 2)
    assert measure_pools() == 0
    assert not PoolMeans.objects.exists()


def test_a_pool_that_served_nothing_has_no_mean(db: None, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    now_ms = int(time.time()) * 1000
    parts = ("sum", "count")
    idle = [named(f"pool:headworks_engine_e2e_seconds_{part}:rate1m", [(now_ms - 1, 0.0)], pool="p") for part in parts]
    store(store_path(), idle, Owner("node", "n-1"))
    assert measure_pools() == 0


def test_metrics_that_do_not_answer_leave_what_was_measured(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(6.0)

    def away(promql: str, at_ms: int) -> list[Sample]:
        raise query.QueryError("the server is away")

    monkeypatch.setattr(query, "instant", away)
    assert measure_pools() == 0
    assert pool_means.means_now() == {"short": Means(6.0, None)}


def test_the_view_shows_the_ceilings_of_classes_as_they_hold_now(pool: Rest) -> None:
    pool.post("/priority-classes", {"name": "overnight", "rank": 9, "kv_ceiling_permille": 800})
    pool.post("/engines", {**ENGINE, "name": "e2"})
    assert capacity(pool)["ceilings"] == {"overnight": {"configured_permille": 800, "permille": 800}}
    pool.post("/engines/e2/cordon", {})
    assert capacity(pool)["ceilings"] == {"overnight": {"configured_permille": 800, "permille": 600}}
