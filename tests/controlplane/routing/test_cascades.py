"""A cascade is data of its route: what it compiles into, and what it may not say."""

from __future__ import annotations

import pytest

from controlplane.routing.models import Route
from tests.controlplane.core.configuration import compiled
from tests.controlplane.routing.test_routes import problems_of
from wire import snapshot
from wire.problems import type_problems

CASCADE = {"pool": "tiny", "escalate_on": ["length", "empty", "length"]}
RULE = {"name": "all", "pools": {"long": 1000}, "cascade": CASCADE}


@pytest.fixture
def cascading(pools):
    """The pools of the other routes' tests, and a pool of a smaller model."""
    pools.post("/models", {"name": "org/tiny", "max_context_tokens": 8192})
    assert pools.post("/pools", {"name": "tiny", "model": "org/tiny"}).status_code == 201
    return pools


def test_it_compiles_into_its_wire_form_and_reads_as_it_was_given(cascading):
    assert cascading.post("/routes", RULE).status_code == 201
    content = compiled("routes", "all")
    assert content["cascade"] == {"pool": "tiny", "escalate_on": {"empty": True, "length": True}}
    assert type_problems(content, snapshot.Route) == []
    assert cascading.get("/routes/all").json()["cascade"] == {
        "pool": "tiny",
        "escalate_on": ["empty", "length"],
        "confidence_permille": None,
        "max_prompt_tokens": None,
    }


def test_it_is_taken_and_taken_back_without_a_warning(cascading):
    assert cascading.post("/routes", RULE).json()["warnings"] == []
    assert cascading.patch("/routes/all", {"cascade": None}).json()["warnings"] == []
    assert "cascade" not in compiled("routes", "all")


@pytest.mark.parametrize(
    ("cascade", "expected"),
    [
        ({**CASCADE, "escalate_on": []}, ("/cascade/escalate_on", "too_short")),
        ({**CASCADE, "escalate_on": ["boredom"]}, ("/cascade/escalate_on/0", "literal_error")),
        ({**CASCADE, "escalate_on": ["low_confidence"]}, ("/cascade/confidence_permille", "one_of")),
        ({**CASCADE, "confidence_permille": 700}, ("/cascade/confidence_permille", "one_of")),
        ({**CASCADE, "pool": "long"}, ("/cascade/pool", "unique")),
        ({**CASCADE, "pool": "nowhere"}, ("/routes/all/cascade/pool", "reference")),
        ({**CASCADE, "pool": "short"}, ("/routes/all/cascade/pool", "same_model")),
        ({"escalate_on": ["empty"]}, ("/cascade/pool", "required")),
    ],
)
def test_a_bad_one_is_refused_where_it_is_wrong(cascading, cascade, expected):
    assert expected in problems_of(cascading.post("/routes", {**RULE, "cascade": cascade}))
    assert not Route.objects.exists()


def test_a_rule_that_rejects_has_nothing_to_escalate_to(cascading):
    answer = cascading.post("/routes", {"name": "all", "reject": "no", "cascade": CASCADE})
    assert ("/cascade", "one_of") in problems_of(answer)


def test_no_pool_gets_the_model_of_the_one_that_escalates_to_it(cascading):
    cascading.post("/routes", RULE)
    answer = cascading.patch("/pools/tiny", {"model": "org/llama"})
    assert problems_of(answer) == {("/routes/all/cascade/pool", "same_model")}
    assert cascading.patch("/pools/short", {"model": "org/tiny"}).status_code == 200


def test_a_pool_that_is_asked_first_stays(cascading):
    cascading.post("/routes", RULE)
    assert problems_of(cascading.delete("/pools/tiny")) == {("/routes/all/cascade/pool", "reference")}


def test_a_whole_configuration_may_set_one(cascading):
    document = cascading.get("/config?format=json").json()
    document["routes"] = {"all": {"pools": {"long": 1000}, "cascade": {"pool": "tiny", "escalate_on": ["empty"]}}}
    answer = cascading.put("/config", document)
    assert answer.status_code == 200, answer.content
    assert cascading.get("/config?format=json").json() == document
