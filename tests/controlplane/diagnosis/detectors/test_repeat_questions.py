"""Row 12: the same questions computed again, and caches that give the wrong answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.diagnosis.detector import Finding, Fleet
from controlplane.diagnosis.detectors.repeat_questions import RepeatQuestions
from controlplane.fleet.services import MODELS, POOLS
from controlplane.tenants.services import CACHE_POLICIES, TENANTS
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter

ACME: Any = {"pool": "chat", "tenant": "acme"}
CACHE: Any = {"cache": "semantic", "tenant": "acme", "model": "llama"}
DETECTOR = RepeatQuestions()
SEMANTIC = {
    "embedding_model": "bge", "similarity_permille": 900, "ttl_ms": 1000, "max_entries": 10, "only_verified": True,
    "time_bound": [], "time_bound_ttl_ms": 1000,
}  # fmt: skip


def series(repeated: float = 2.0, asked: float = 4.0, retries: float = 0.0, wrong: float = 0.0) -> list[Any]:
    return [
        counter("headworks_gateway_repeated_requests_total", repeated, kind="duplicate", **ACME),
        counter("headworks_gateway_repeated_requests_total", retries, kind="retry", **ACME),
        counter("headworks_gateway_requests_total", asked, outcome="ok", reason="none", priority_class="c", **ACME),
        counter("headworks_gateway_cache_lookups_total", 1.0, **CACHE),
        counter("headworks_gateway_cache_hits_total", 0.5, **CACHE),
        counter("headworks_gateway_cache_wrong_hits_total", wrong, **CACHE),
    ]


def found(fleet: Fleet | None = None, **given: Any) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), fleet or helpers.fleet())


def with_policy(**policy: Any) -> Fleet:
    return helpers.fleet(tenants=[helpers.tenant(cache_policy="faq")], cache_policies=[helpers.cache_policy(**policy)])


def keyed(finding: Finding) -> dict[str, Any]:
    return {lever.key: lever for lever in finding.levers}


def test_a_tenant_that_asks_the_same_again_is_found():
    (finding,) = found()
    assert (finding.subject, finding.pools, finding.tenants) == ("tenant/acme", ("chat",), ("acme",))
    evidence = {part.name: part for part in finding.evidence}
    assert evidence["duplicates"].value == pytest.approx(0.5)
    assert evidence["cache_hit_rate"].value == pytest.approx(0.5)


@pytest.mark.parametrize("given", [{"repeated": 0.4}, {"repeated": 0.1, "asked": 0.2}, {"repeated": 0.0}])
def test_few_repeats_and_few_requests_say_nothing(given: Any):
    assert not found(**given)


def test_a_storm_of_retries_makes_it_doubtful():
    (sure,), (doubtful,) = found(), found(retries=5.0)
    assert doubtful.confidence_permille < sure.confidence_permille


def test_without_a_policy_one_is_made_with_room_for_the_new_questions_of_its_time():
    (finding,) = found()
    create, name = keyed(finding)["exact_cache"].edits
    assert (create.noun, create.create, name.changes) == ("cache-policies", True, {"cache_policy": create.key})
    # 2 new questions a second, for an hour.
    assert create.changes["exact"] == {"ttl_ms": 3_600_000, "max_entries": pytest.approx(7200, rel=0.02)}


def test_a_policy_that_is_there_gets_an_exact_cache_and_a_semantic_one_where_vectors_are_made():
    of = with_policy(exact=None)
    vectors = helpers.pool("vectors", engines=("v1",), model="bge", work="embedding")
    of = helpers.fleet(
        [helpers.pool(), vectors], tenants=of.tenants.values(), cache_policies=of.cache_policies.values()
    )
    levers = keyed(found(of)[0])
    assert [edit.key for edit in levers["exact_cache"].edits] == ["faq"]
    assert levers["semantic_cache"].edits[0].changes["semantic"]["embedding_model"] == "bge"


def test_a_cache_that_is_too_small_grows_and_one_that_misses_is_looked_into():
    of = with_policy(exact={"ttl_ms": 1000, "max_entries": 10})
    levers = keyed(found(of)[0])
    assert levers["more_entries"].edits[0].changes["exact"]["max_entries"] > 7000
    assert levers["mend_cache"].advice


def test_a_small_model_is_asked_first_where_there_is_one():
    of = helpers.fleet(
        [helpers.pool(lengths=helpers.lengths()), helpers.pool("small", engines=("s1",), model="tiny")],
        models=[helpers.model(), helpers.model("tiny", kv_bytes_per_token=16_384)],
        routes=[helpers.route()],
    )
    (edit,) = keyed(found(of)[0])["small_first"].edits
    assert edit.changes["cascade"]["pool"] == "small"
    assert edit.changes["cascade"]["max_prompt_tokens"] == of.pools["chat"].lengths.prompt_tokens[900]  # type: ignore[union-attr]


def test_wrong_hits_raise_the_threshold_whatever_repeats():
    (finding,) = found(with_policy(semantic=SEMANTIC), wrong=0.05)
    assert [lever.key for lever in finding.levers] == ["raise_similarity"]
    assert finding.levers[0].edits[0].changes["semantic"] == {**SEMANTIC, "similarity_permille": 950}
    assert not [lever for each in found(with_policy(semantic=SEMANTIC), wrong=0.001) for lever in each.levers
                if lever.key == "raise_similarity"]  # fmt: skip


def test_a_threshold_that_can_rise_no_more_ends_the_semantic_cache():
    (finding,) = found(with_policy(semantic={**SEMANTIC, "similarity_permille": 995}), wrong=0.05)
    assert finding.levers[0].edits[0].changes == {"semantic": None}


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    with unit_of_work(SYSTEM, "for a test") as unit:
        MODELS.update(unit, "llama", {"kv_bytes_per_token": 131_072})
        MODELS.create(unit, "tiny", {"max_context_tokens": 8192})
        POOLS.create(unit, "small", {"model": "tiny"})
        CACHE_POLICIES.create(unit, "faq", {"exact": {"max_entries": 10}})
    of = helpers.fleet(
        [helpers.pool(lengths=helpers.lengths()), helpers.pool("small", engines=("s1",), model="tiny")],
        models=[helpers.model(), helpers.model("tiny", kv_bytes_per_token=16_384)],
        routes=[helpers.route()],
    )
    (finding,) = found(of)
    assert {"exact_cache", "small_first"} <= keyed(finding).keys()
    kit.dry_run(finding)
    with unit_of_work(SYSTEM, "for a test") as unit:
        TENANTS.update(unit, "acme", {"cache_policy": "faq"})
    kit.dry_run(found(with_policy(exact={"ttl_ms": 3_600_000, "max_entries": 10}))[0])


@given(repeated=st.floats(0, 100), asked=st.floats(1, 100), more=st.floats(0, 100))
def test_more_repeats_never_clear_it(repeated: float, asked: float, more: float):
    def judged(duplicates: float) -> list[Finding]:
        answers = helpers.readings(DETECTOR, duplicates=[(ACME, duplicates)], requests=[(ACME, asked)])
        return list(DETECTOR.judge(answers, helpers.fleet()))

    if judged(repeated):
        assert judged(repeated + more)
