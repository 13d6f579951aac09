from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.outgoing import shown
from controlplane.alerts.receivers.redaction import HIDDEN, redacted
from controlplane.alerts.transport import ANSWER_BYTES

FLOW = "https://flows.example:8443/paths/invoke?api-version=1&sig=s3cr%2Bt-signature"


@pytest.mark.parametrize(
    "said",
    [
        FLOW,
        f'{{"url": {json.dumps(FLOW)}}}'.replace("/", "\\/"),
        quote(FLOW),
        quote(FLOW, safe=""),
        "GET /paths/invoke?api-version=1&sig=s3cr%2Bt-signature HTTP/1.1",
        "sig is s3cr+t-signature",
        "sig is s3cr%2Bt-signature",
    ],
)
def test_a_secret_url_is_found_in_every_form(said):
    assert "t-signature" not in redacted(said, [FLOW])
    assert HIDDEN in redacted(said, [FLOW])


def test_the_token_of_an_apprise_url_is_found_in_its_host():
    said = redacted("POST https://discord.example/4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", [
        "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js"
    ])  # fmt: skip
    assert said == f"POST https://discord.example/{HIDDEN}"


@given(st.text(min_size=6), st.text(), st.text())
def test_no_secret_is_left_whatever_stands_around_it(secret, before, after):
    assert secret not in redacted(f"{before}{secret}{after}", [secret]).replace(HIDDEN, "\0")


def test_a_text_without_it_stays():
    assert redacted("answered 500 Internal Server Error", [FLOW, "", "abc"]) == "answered 500 Internal Server Error"


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_secret_that_the_bound_on_the_answer_cuts_is_not_shown_in_part(cut):
    secret = "s3cret-that-is-forty-characters-long-000"
    padding = secret * (ANSWER_BYTES // len(secret) - 1)
    said = (padding + "x" * (ANSWER_BYTES - len(padding) - cut) + secret)[:ANSWER_BYTES]
    outcome = shown(Outcome(Reason.REJECTED, f"no {secret}", said=said), [secret])
    assert outcome.text == f"no {HIDDEN}"
    assert secret[:cut] not in outcome.said.replace(HIDDEN, "") or cut < 3
