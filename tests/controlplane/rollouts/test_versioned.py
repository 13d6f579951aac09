"""A new version over REST: its engines are made ready before clients get it."""

from __future__ import annotations

from typing import Any

from controlplane.routing.models import Route
from tests.controlplane.conftest import Rest
from tests.controlplane.rollouts.driving import begun, held_out, rounds

VERSIONED = {"kind": "versioned", "family": "m", "version": "2.0", "model": "org/m-1", "pool": "new"}


def test_a_new_version_is_published_when_its_engines_are_ready(fleet: Rest, step: Any) -> None:
    fleet.post("/models", {"name": "org/m-2", "max_context_tokens": 8192})
    engines = {"v-1": {"url": "http://10.0.0.8:8000", "served_model": "m", "node": "n-new"}}
    body = {"kind": "versioned", "family": "m", "version": "2", "model": "org/m-2", "pool": "m-2", "like": "old"}
    path = begun(fleet, {**body, "engines": engines})
    assert list(held_out()) == ["v-1"]
    rounds(step, lambda: fleet.get(path).json()["state"] == "done")
    assert held_out() == {}
    route = Route.objects.get(name="m-2")
    assert (route.pools, list(route.match["models"])) == ({"m-2": 1000}, ["org/m-2"])
    newest = fleet.get("/model-versions").json()["items"][0]
    assert (newest["family"], newest["version"], newest["model"]) == ("m", "2", "org/m-2")


def test_what_cannot_be_published_is_refused_before_an_engine_is_touched(fleet: Rest) -> None:
    published = fleet.post("/model-versions", {"family": "m", "version": "2.0", "model": "org/m-1"})
    assert published.status_code == 201, published.content
    answer = fleet.post("/rollouts", VERSIONED)
    assert (answer.status_code, "is published already" in answer.json()["detail"]) == (409, True), answer.content
    assert held_out() == {}


def test_a_version_that_is_published_is_not_taken_back_and_one_that_is_not_leaves_service(
    fleet: Rest, step: Any
) -> None:
    path = begun(fleet, VERSIONED)
    rounds(step, lambda: fleet.get(path).json()["said"] == "publish begins" or not held_out())
    assert fleet.post(f"{path}/return").status_code == 200
    rounds(step, lambda: fleet.get(path).json()["state"] == "returned")
    assert set(held_out()) == {"new-1", "new-2"}
    again = begun(fleet, VERSIONED)
    rounds(step, lambda: bool(fleet.get("/model-versions").json()["items"]))
    assert fleet.post(f"{again}/return").status_code == 409


def test_a_version_for_a_pool_of_another_model_is_refused(fleet: Rest) -> None:
    fleet.post("/models", {"name": "org/m-2", "max_context_tokens": 8192})
    body = {"kind": "versioned", "family": "m", "version": "2", "model": "org/m-2", "pool": "new"}
    answer = fleet.post("/rollouts", body)
    assert (answer.status_code, answer.json()["detail"][:8]) == (422, "/model: "), answer.content
