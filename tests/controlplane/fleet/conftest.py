"""A small fleet: one model, one pool, one node, one engine."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from tests.controlplane.conftest import Rest

MODEL = "meta-llama/Llama-3.1-8B"
ENGINE = {"name": "e1", "url": "http://10.0.0.1:8000", "pool": "short", "served_model": MODEL, "node": "n1"}


@pytest.fixture
def fleet(admin):
    """An administrator's REST, with rows to work on."""
    made = [
        admin.post("/models", {"name": MODEL, "max_context_tokens": 8192}),
        admin.post("/pools", {"name": "short", "model": MODEL}),
        admin.post("/nodes", {"name": "n1"}),
        admin.post("/engines", ENGINE),
    ]
    assert [answer.status_code for answer in made] == [201] * 4, [answer.content for answer in made]
    return admin


@pytest.fixture
def tokenizer_file() -> bytes:
    return Tokenizer(WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")).to_str().encode()


@pytest.fixture
def upload(admin):
    """Send a file as an artifact; the answer."""

    def send(content: bytes, name: str = "tokenizer.json", kind: str = "tokenizer", **headers: str):
        path = f"/api/v1/artifacts?kind={kind}&name={name}&reason=a+test"
        return admin.client.generic("POST", path, content, content_type="application/octet-stream", headers=headers)

    return send


@pytest.fixture
def agent(fleet) -> Rest:
    """The enrolled agent of n1."""
    return enrolled(fleet, "n1")


def enrolled(admin: Rest, node: str) -> Rest:
    joined = admin.post("/targets/join-tokens", {"kind": "node", "name": node}).json()["secret"]
    asks = {"join_token": joined, "kind": "node", "name": node, "version": "1", "protocol": 1}
    return Rest(Rest(None).post("/targets/enrol", asks).json()["token"])


def problem_paths(answer) -> set[str]:
    assert answer.status_code == 422, answer.content
    return {problem["path"] for problem in json.loads(answer.content)["problems"]}
