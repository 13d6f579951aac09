"""The shell line beside each action."""

from __future__ import annotations

import shlex

from django.test import RequestFactory

from controlplane.web.curl import curl, reason_of


def test_it_is_one_command_that_a_shell_reads_as_meant() -> None:
    request = RequestFactory().get("/tenants/", headers={"host": "localhost:8600"})
    body = {"tpm_limit": 5, "label": "it's $HOME `x`"}
    line = curl(request, "PATCH", "/tenants/acme", query={"reason": "night shift & more"}, body=body)
    words = shlex.split(line.replace("\\\n", ""))
    assert words[0] == "curl"
    assert words[-1] == "http://localhost:8600/api/v1/tenants/acme?reason=night+shift+%26+more"
    assert words[words.index("-X") + 1] == "PATCH"
    assert words[words.index("--data") + 1] == '{"tpm_limit": 5, "label": "it\'s $HOME `x`"}'


def test_it_holds_the_name_of_a_token_and_no_token() -> None:
    request = RequestFactory().get("/", headers={"host": "localhost", "authorization": "Bearer hwt-secret"})
    assert "$HEADWORKS_TOKEN" in curl(request, "GET", "/tenants")
    assert "hwt-secret" not in curl(request, "GET", "/tenants")


def test_it_says_the_reason_that_was_typed() -> None:
    factory = RequestFactory()
    assert reason_of(factory.get("/")) == {"reason": "WHY"}
    assert reason_of(factory.post("/", {"reason": " too low "})) == {"reason": "too low"}
