"""Size classes that are offered from sketches, and the rules that would make them."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.controlplane.conftest import Rest
from tests.controlplane.telemetry.decisions.test_sketches import counts, post, sketch
from wire.sketches import MINUTE_MS

MODEL = "org/m-1"
CHATS, DOCUMENTS = [100, 300, 500] * 300, [32_000] * 100


def offered(viewer: Rest, **query: Any) -> Any:
    return viewer.get(f"/size-classes?{urlencode({'model': MODEL, **query}, doseq=True)}")


def tell(gateway: Rest, pool: str, prompts: list[int], outputs: list[int]) -> None:
    """Of the minute before the last."""
    minute = (time.time_ns() // 1_000_000 // MINUTE_MS - 2) * MINUTE_MS
    told = {"prompt_tokens": counts(*prompts), "max_tokens": counts(*outputs), "arrivals": len(prompts)}
    post(gateway, sketch(minute=minute, pool=pool, **told))


@pytest.fixture
def cut(gateway: Rest, admin: Rest) -> Rest:
    """Pools for short, middle and long work, and 1000 requests of two kinds."""
    for name, work in (("brief", "short"), ("middle", "short"), ("whole", "long")):
        assert admin.post("/pools", {"name": name, "model": MODEL, "work": work}).status_code == 201
    assert admin.delete("/pools/chat").status_code == 200
    tell(gateway, "brief", CHATS, [500] * 990 + [4000] * 10)
    tell(gateway, "whole", DOCUMENTS, [500] * 100)
    return admin


def test_too_few_requests_say_how_many_more_are_needed(gateway: Rest, viewer: Rest) -> None:
    tell(gateway, "chat", [10] * 993, [16])
    answer = offered(viewer).json()
    assert (answer["requests"], answer["requests_missing"], answer["classes"], answer["routes"]) == (993, 7, [], None)
    assert "7 more" in answer["says"]


@pytest.mark.usefixtures("cut")
def test_two_classes_go_to_the_pools_that_are_for_such_work(viewer: Rest) -> None:
    answer = offered(viewer).json()
    brief, whole = answer["classes"]
    assert (brief["name"], brief["pools"], whole["name"], whole["pools"]) == (
        "short", ["brief", "middle"], "long", ["whole"],
    )  # fmt: skip
    assert 500 < brief["max_prompt_tokens"] <= 32_000
    assert (brief["requests_permille"], whole["requests_permille"]) == (900, 100)
    assert whole["tokens_permille"] > 900
    assert answer["wait_ratio"] < 0.2
    # One in 110 asks for more than this.
    assert (512 <= answer["max_max_tokens"] <= 4000, answer["above_permille"]) == (True, 10)
    short, long = answer["routes"]["size-short"], answer["routes"]["size-long"]
    assert short["match"] == {
        "models": [MODEL],
        "max_prompt_tokens": brief["max_prompt_tokens"],
        "max_max_tokens": answer["max_max_tokens"],
    }
    assert short["pools"] == {"brief": 500, "middle": 500}
    assert (long["match"], long["pools"]) == ({"models": [MODEL]}, {"whole": 1000})
    assert short["order"] < long["order"]


def test_the_rules_can_be_tried_and_put_as_they_stand(cut: Rest, viewer: Rest) -> None:
    routes = offered(viewer).json()["routes"]
    asked = {"model": MODEL, "tenant": "acme", "priority_class": "batch", "max_tokens": 100}
    for prompt_tokens, rule in ((100, "size-short"), (32_000, "size-long")):
        question = {**asked, "prompt_tokens": prompt_tokens, "routes": routes}
        assert viewer.post("/routes/test", question).json()["rule"] == rule
    assert viewer.get("/routes").json()["items"] == []
    assert {cut.post("/routes", {"name": name, **rule}).status_code for name, rule in routes.items()} == {201}


@pytest.mark.usefixtures("cut")
def test_three_pools_make_three_classes_in_their_order(gateway: Rest, viewer: Rest) -> None:
    assert "no cut into 3" in offered(viewer, pool=["brief", "middle", "whole"]).json()["says"]
    tell(gateway, "middle", [4000] * 200, [16])
    answer = offered(viewer, pool=["brief", "middle", "whole"]).json()
    assert [each["name"] for each in answer["classes"]] == ["short", "medium", "long"]
    assert [list(rule["pools"]) for rule in answer["routes"].values()] == [["brief"], ["middle"], ["whole"]]


def test_where_no_pool_is_for_a_class_there_are_no_rules(cut: Rest, viewer: Rest) -> None:
    cut.patch("/pools/whole", {"work": "short"})
    answer = offered(viewer).json()
    assert len(answer["classes"]) == 2
    assert answer["routes"] is None
    assert "no pool of the model is for long work" in answer["says"]


def test_requests_of_one_length_need_one_class(gateway: Rest, viewer: Rest) -> None:
    tell(gateway, "chat", [700] * 1000, [16])
    answer = offered(viewer).json()
    assert (answer["classes"], answer["routes"], answer["requests_missing"]) == ([], None, 0)
    assert "fewer classes are enough" in answer["says"]


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize(
    ("query", "path"),
    [
        ({"pool": ["brief"]}, "/pool"),
        ({"pool": ["brief", "brief"]}, "/pool"),
        ({"pool": ["brief", "nobody"]}, "/pool"),
        ({"pool": ["a", "b", "c", "d"]}, "/pool"),
        ({"since": "2020-01-01T00:00:00Z"}, "/since"),
    ],
)
def test_a_question_put_wrongly_is_refused(viewer: Rest, query: dict[str, Any], path: str) -> None:
    answer = offered(viewer, **query)
    assert answer.status_code == 422, answer.content
    assert {problem["path"] for problem in answer.json()["problems"]} == {path}


def test_a_model_that_does_not_exist_is_not_found(viewer: Rest) -> None:
    assert offered(viewer, model="nobody").status_code == 404
