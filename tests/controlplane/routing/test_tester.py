from __future__ import annotations

import pytest

REQUEST = {
    "model": "org/llama",
    "tenant": "acme",
    "priority_class": "chat",
    "prompt_tokens": 10,
    "max_tokens": 10,
}


@pytest.fixture
def rules(pools):
    made = [
        pools.post("/routes", {"name": "banned", "order": 1, "match": {"tenants": []}, "reject": "banned"}),
        pools.post(
            "/routes", {"name": "large", "order": 2, "match": {"min_prompt_tokens": 1024}, "pools": {"long": 1000}}
        ),
        pools.post(
            "/routes",
            {
                "name": "rest",
                "order": 3,
                "match": {"max_max_tokens": 500},
                "pools": {"short": 900, "long": 100},
                "fallbacks": {"long": 1},
            },
        ),
        pools.post("/routes", {"name": "huge", "order": 4, "match": {"min_max_tokens": 4000}, "reject": "too long"}),
    ]
    assert {answer.status_code for answer in made} == {201}


@pytest.mark.usefixtures("rules")
def test_it_tells_each_rule_tried_and_the_pools_of_the_match(viewer):
    answer = viewer.post("/routes/test", REQUEST).json()
    assert (answer["reason"], answer["rule"]) == ("matched", "rest")
    assert answer["pools"] == {"short": 900, "long": 100}
    assert answer["fallbacks"] == ["long"]
    assert [tried["rule"] for tried in answer["tried"]] == ["banned", "large", "rest"]
    assert "acme" in answer["tried"][0]["mismatch"]
    assert "1024" in answer["tried"][1]["mismatch"]
    assert answer["tried"][2]["mismatch"] is None


@pytest.mark.usefixtures("rules")
def test_it_tells_a_refusal_and_its_message(viewer):
    answer = viewer.post("/routes/test", {**REQUEST, "max_tokens": 4000}).json()
    assert (answer["reason"], answer["rule"], answer["message"]) == ("rejected", "huge", "too long")
    assert answer["pools"] == {}


@pytest.mark.usefixtures("rules")
def test_it_tells_that_no_rule_matches(viewer):
    answer = viewer.post("/routes/test", {**REQUEST, "max_tokens": 1000}).json()
    assert (answer["reason"], answer["rule"]) == ("no_route", None)
    assert len(answer["tried"]) == 4


def test_a_request_described_wrongly_is_refused(viewer):
    answer = viewer.post("/routes/test", {**REQUEST, "prompt_tokens": -1, "tenant": None})
    assert {problem["path"] for problem in answer.json()["problems"]} == {"/prompt_tokens", "/tenant"}
