"""Every named reason in the shape of every API."""

from __future__ import annotations

import json

import pytest

from gateway.errors import error_body, error_event
from gateway.refusals import REASONS, Refused
from policy.asks import APIS
from tests.gateway.protocols import data_of

# https://docs.anthropic.com/en/api/errors
ANTHROPIC_TYPES = {
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "api_error",
    "timeout_error",
    "overloaded_error",
}


@pytest.mark.parametrize("endpoint", [None, *APIS])
def test_every_reason_stands_in_the_field_code_beside_a_kind_that_clients_know(endpoint):
    for reason, row in REASONS.items():
        refused = Refused(reason, 'not "now"', param="model")
        document = json.loads(error_body(refused, endpoint, "r-1"))
        error = document["error"]
        assert (error["code"], error["message"], error["param"]) == (reason, 'not "now"', "model")
        if endpoint == "messages":
            assert (document["type"], document["request_id"]) == ("error", "r-1")
            assert error["type"] in ANTHROPIC_TYPES, reason
        else:
            assert document == {"error": error}
            assert error["type"] == row.error_type


@pytest.mark.parametrize("endpoint", APIS)
def test_an_event_carries_the_same_error_under_the_name_that_its_clients_wait_for(endpoint):
    refused = Refused("engine_error", "it broke")
    event = error_event(refused, endpoint, "r-1", 5)
    (document,) = data_of(event)
    assert document["error"] == json.loads(error_body(refused, endpoint, "r-1"))["error"]
    assert event.startswith(b"event: error\n") == (endpoint in ("responses", "messages"))
    assert event.endswith(b"\n\n")
    if endpoint == "responses":
        told = (document["type"], document["sequence_number"], document["code"], document["message"])
        assert told == ("error", 5, "engine_error", "it broke")
