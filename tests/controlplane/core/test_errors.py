from __future__ import annotations

import json

import pytest

from controlplane.tenants.models import Tenant
from wire.messages import MAX_PROBLEMS


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "a", "\\ud800": 1}',
        b'{"name": "\\ud800"}',
        b'{"name": "a", "models": ["\\ud800"]}',
        b'{"name": "a", "weight": 1e400}',
        b'{"name": "a", "weight": NaN}',
        b'{"name": "a", "weight": 1' + b"0" * 400 + b"}",
    ],
)
def test_what_cannot_be_text_or_a_number_is_refused(operator, body):
    answer = operator.call("POST", "/tenants", body)
    assert answer.status_code == 422
    assert answer.json()["problems"]
    assert not Tenant.objects.exists()


def test_a_body_nested_too_deep_is_refused(operator):
    answer = operator.call("POST", "/tenants", b'{"models":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert answer.status_code == 400
    assert not Tenant.objects.exists()


def test_an_answer_lists_a_bounded_number_of_problems(operator):
    body = {"name": "a", **{f"field-{index}": 1 for index in range(MAX_PROBLEMS * 2)}}
    answer = operator.call("POST", "/tenants", json.dumps(body).encode())
    assert len(answer.json()["problems"]) == MAX_PROBLEMS
    assert answer["content-type"] == "application/problem+json"
