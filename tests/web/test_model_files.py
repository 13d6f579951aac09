"""The page of models' files."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.core.models import Role
from controlplane.fleet.models import Act
from tests.web.conftest import new_target
from tests.web.hardware import MODEL, node
from tests.web.model_files import with_manifest

PAGE = "/model-files/"


@pytest.fixture
def rack() -> None:
    node("rack-1", engines=["llama-a"])
    new_target("node", "rack-1")


def test_it_says_what_is_there_and_what_lacks(viewer: Client, rack: None) -> None:
    with_manifest("rack-1", state="partial", detail="lack: weights.safetensors")
    shown = viewer.get(PAGE).content.decode()
    assert "incomplete" in shown
    assert "25 %" in shown
    assert "lack: weights.safetensors" in shown
    assert "?model=" not in shown, "a viewer asks for nothing"


def test_a_node_that_told_nothing_is_named(viewer: Client, rack: None) -> None:
    assert "No model has a manifest." in viewer.get(PAGE).content.decode()
    with_manifest("rack-1")
    shown = viewer.get(PAGE).content.decode()
    assert "rack-1" in shown
    assert "unknown" in shown


def test_a_fetch_is_asked_for_through_the_review_and_its_progress_shown(browser_of, rack: None) -> None:
    with_manifest("rack-1", state="partial")
    operator = browser_of(Role.OPERATOR)
    address = f"{PAGE}fetch/?model={MODEL}"
    review = operator.get(address)
    digest = review.context["rehearsal"].digest
    answer = operator.post(address, {"step": "apply", "digest": digest, "reason": "a new node"})
    assert answer.status_code == 302
    assert Act.objects.get().action == "fetch_model"
    Act.objects.update(state="running", progress_permille=420)
    assert '<progress max="100" value="42">' in operator.get(PAGE).content.decode()


def test_what_cannot_be_asked_for_is_said(browser_of, rack: None) -> None:
    operator = browser_of(Role.OPERATOR)
    assert operator.get(f"{PAGE}fetch/?model={MODEL}").status_code == 422
    assert operator.get(f"{PAGE}fetch/?model=nobody").status_code == 404
    assert operator.get(f"{PAGE}burn/?model={MODEL}").status_code == 404
