"""The pages of the diagnosis: the grid, a finding with its levers, what became of levers, policies."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.translation import override

from controlplane.core.models import Role
from controlplane.diagnosis.detectors.registry import DETECTORS
from controlplane.diagnosis.models import Finding, FindingState, LeverPolicy, Proposal, ProposalState
from controlplane.diagnosis.services import proposals
from controlplane.fleet.models import Pool
from controlplane.fleet.services import POOLS
from controlplane.telemetry import query
from controlplane.telemetry.promql.errors import Unavailable
from controlplane.telemetry.results import Series
from controlplane.web.shown.diagnosis import shown_value
from controlplane.web.shown.places import place, place_address
from controlplane.web.states import LOOKS
from tests.web.conftest import digest_of, write
from tests.web.diagnosed import LEVER, found


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def card_of(page: str, name: str) -> str:
    card = re.search(rf'<section class="card detector" id="detector-{name}">.*?</section>', page, re.DOTALL)
    assert card
    return card[0]


def apply(finding: Finding) -> None:
    write(lambda unit: proposals.apply(unit, finding.pk, "kv_admit"))


def test_every_detector_has_a_card_with_its_state_and_explanation(db: None, viewer: Client) -> None:
    page = viewer.get("/diagnosis/").content.decode()
    assert re.findall(r'id="detector-([a-z_]+)"', page) == [detector.name for detector in DETECTORS]
    assert "Nobody has looked yet" in page
    card = text_of(card_of(page, "kv_exhausted"))
    assert "not looked yet" in card
    assert "Keys and values of every token" in card


def test_what_is_found_leads_to_its_page_and_stands_on_the_strip(db: None, viewer: Client) -> None:
    finding = found()
    page = viewer.get("/diagnosis/").content.decode()
    card = card_of(page, "kv_exhausted")
    assert f'href="/diagnosis/findings/{finding.pk}/"' in card
    assert "Pool kv since 2 h ago · confidence 90 % kv: the KV cache is 97 % full" in text_of(card)
    ((x, width),) = re.findall(r'<rect x="([\d.]+)" width="([\d.]+)"', card)
    assert (round(float(x)), round(float(width))) == (1320, 120)
    assert "1 bottleneck found" in text_of(page)


def test_a_blind_detector_says_why(db: None, viewer: Client) -> None:
    found(error="kv_use: the metrics server is away")
    card = text_of(card_of(viewer.get("/diagnosis/").content.decode(), "kv_exhausted"))
    assert "blind kv_use: the metrics server is away" in card
    assert "Pool kv" in card


def test_more_levers_of_a_finding_cost_no_more_queries(db: None, viewer: Client) -> None:
    finding, counts = found(), []
    lever = finding.proposals.get()
    # The first page of a log-in is noted in its session.
    viewer.get(f"/diagnosis/findings/{finding.pk}/")
    for key in ("second", "third", "fourth"):
        with CaptureQueriesContext(connection) as queries:
            viewer.get(f"/diagnosis/findings/{finding.pk}/")
        counts.append(len(queries))
        lever.pk, lever.key = None, key
        lever.save()
    assert counts[0] == counts[-1]


def test_a_finding_shows_evidence_against_limits_and_levers_as_diffs(db: None, viewer: Client) -> None:
    finding = found()
    page = text_of(viewer.get(f"/diagnosis/findings/{finding.pk}/").content.decode())
    assert "kv use 97.1 % 95 % max by (pool) (kv)" in page
    assert "kv capacity 98,304 tokens –" in page
    assert "Admit less kv_admit proposed Of those admitted 20 run and 12 wait." in page
    assert re.search(r"pool kv Field Before After Admit until so full \(KV cache, %\) kv_admit_permille 90 80", page)
    assert "Apply" not in page


def test_a_store_that_does_not_answer_is_not_waited_for_at_each_piece_of_evidence(
    db: None, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = found()
    finding.evidence = [{**finding.evidence[0], "expr": expr} for expr in ("kv", "kv * 2")]
    finding.save()
    asked: list[object] = []

    def hangs(promql: str, *_asked: int, **_options: float) -> list[Series]:
        asked.append(promql)
        raise Unavailable("it did not answer")

    monkeypatch.setattr(query, "range_", hangs)
    assert viewer.get(f"/diagnosis/findings/{finding.pk}/").status_code == 200
    assert asked == ["kv"]


def test_its_evidence_is_drawn_once_and_not_each_time_that_the_page_asks_anew(
    db: None, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = found()
    series = [Series({"pool": "kv"}, [0, 1], [0.5, 0.9]), Series({"pool": "other"}, [0, 1], [0.1, 0.1])]
    monkeypatch.setattr(query, "range_", lambda *_asked, **_options: series)
    address = f"/diagnosis/findings/{finding.pk}/"
    page = viewer.get(address).content.decode()
    assert len(re.findall(r"<polyline", page)) == 1
    assert re.search(r'<line x1="0" x2="600" y1="7\.3"', page)
    assert "<polyline" not in viewer.get(address, headers={"hx-request": "true"}).content.decode()


def test_an_operator_applies_what_the_review_showed(db: None, operator: Client) -> None:
    finding = found()
    link = f"/diagnosis/findings/{finding.pk}/kv_admit/apply/"
    assert f'href="{link}"' in operator.get(f"/diagnosis/findings/{finding.pk}/").content.decode()
    asked = operator.get(link)
    assert asked.status_code == 302
    review = operator.get(asked["Location"]).content.decode()
    assert f"/api/v1/diagnosis/findings/{finding.pk}/levers/kv_admit/apply" in review
    form = {"step": "apply", "reason": "full", "digest": digest_of(review)}
    done = operator.post(asked["Location"], form)
    assert done.status_code == 302, text_of(done.content.decode())
    assert Pool.objects.get(name="kv").kv_admit_permille == 800
    page = text_of(operator.get(done["Location"]).content.decode())
    assert "by operator-person: full" in page
    assert "Take back" in page


def test_numbers_that_followed_the_measurement_are_not_applied_unseen(db: None, operator: Client) -> None:
    finding = found()
    address = operator.get(f"/diagnosis/findings/{finding.pk}/kv_admit/apply/")["Location"]
    digest = digest_of(operator.get(address).content.decode())
    Proposal.objects.update(edits=[{**LEVER["edits"][0], "changes": {"kv_admit_permille": 500}}])
    answer = operator.post(address, {"step": "apply", "reason": "full", "digest": digest})
    assert answer.status_code == 409
    assert "Its numbers followed what was measured meanwhile" in answer.content.decode()
    assert Pool.objects.get(name="kv").kv_admit_permille == 900


def test_what_was_changed_since_is_named_instead_of_taken_back(db: None, operator: Client) -> None:
    finding = found()
    apply(finding)
    write(lambda unit: POOLS.update(unit, "kv", {"kv_admit_permille": 777}))
    page = text_of(operator.get(f"/diagnosis/findings/{finding.pk}/").content.decode())
    assert "pools/kv kv_admit_permille: 800 → 777 · headworks" in page
    assert "Take back" not in page
    link = operator.get(f"/diagnosis/findings/{finding.pk}/kv_admit/revert/")["Location"]
    answer = operator.get(link)
    assert answer.status_code == 409
    assert "changed_since" in answer.content.decode()


def test_one_call_takes_back_what_did_not_help(db: None, operator: Client) -> None:
    finding = found()
    apply(finding)
    Proposal.objects.update(state=ProposalState.OFFERED_BACK)
    link = operator.get(f"/diagnosis/findings/{finding.pk}/kv_admit/revert/")["Location"]
    digest = digest_of(operator.get(link).content.decode())
    assert operator.post(link, {"step": "apply", "reason": "no help", "digest": digest}).status_code == 302
    assert Pool.objects.get(name="kv").kv_admit_permille == 900
    history = text_of(operator.get("/diagnosis/levers/").content.decode())
    assert "reverted Admit less KV cache exhausted · Pool kv headworks" in history


def test_an_admin_lets_a_lever_be_applied_by_itself(
    db: None, admin: Client, browser_of: Callable[[Role | None], Client]
) -> None:
    finding = found()
    page = admin.get(f"/diagnosis/findings/{finding.pk}/").content.decode()
    (link,) = re.findall(r'href="(/diagnosis/policies-new/[^"]*)"', page)
    form = admin.get(link.replace("&amp;", "&")).content.decode()
    assert '<option value="kv_exhausted" selected>' in form
    assert 'value="kv_admit"' in form
    fields = {"name": "kv", "detector": "kv_exhausted", "lever": "kv_admit", "enabled": "on", "max_an_hour": "2",
              "min_confidence_permille": "90", "pools": ["kv"], "stand_back_seconds": "60"}  # fmt: skip
    review = admin.post("/diagnosis/policies-new/", {**fields, "step": "review"}).content.decode()
    sent = {**fields, "step": "apply", "reason": "nights", "digest": digest_of(review)}
    assert admin.post("/diagnosis/policies-new/", sent).status_code == 302
    policy = LeverPolicy.objects.get()
    assert (policy.enabled, policy.min_confidence_permille, policy.pools, policy.revert_if_not_held) == (
        True, 900, ["kv"], False,
    )  # fmt: skip
    assert "kv on KV cache exhausted kv_admit 2 an hour" in text_of(admin.get("/diagnosis/levers/").content.decode())
    deleting = admin.get("/diagnosis/policies/kv/delete/").content.decode()
    sent = {"step": "apply", "reason": "enough", "digest": digest_of(deleting)}
    assert admin.post("/diagnosis/policies/kv/delete/", sent).status_code == 302
    assert not LeverPolicy.objects.exists()


def test_a_policy_that_is_refused_says_so_at_its_field(db: None, admin: Client) -> None:
    found()
    fields = {"name": "Not A Name", "detector": "kv_exhausted", "lever": "kv_admit", "max_an_hour": "99",
              "min_confidence_permille": "90", "stand_back_seconds": "60"}  # fmt: skip
    answer = admin.post("/diagnosis/policies-new/", {**fields, "step": "review"})
    assert answer.status_code == 422
    assert len(re.findall(r'class="errorlist"', answer.content.decode())) == 2


def test_what_a_finding_says_is_in_the_reader_s_language(db: None, viewer: Client) -> None:
    finding = found()
    page = text_of(viewer.get(f"/diagnosis/findings/{finding.pk}/", headers={"accept-language": "tr"}).content.decode())
    assert "kv: KV önbelleği %97 dolu" in page
    assert "Daha az kabul et" in page
    assert "önerildi" in page


def test_every_state_has_a_look_and_a_turkish_word() -> None:
    names = [
        *(f"detector_{state}" for state in ("found", "clear", "blind", "waiting")),
        *(f"finding_{state}" for state in FindingState if state != FindingState.PENDING),
        *(f"lever_{state}" for state in ProposalState),
    ]
    with override("en"):
        plain = {name: str(LOOKS[name].label) for name in names}
    with override("tr"):
        assert all(str(LOOKS[name].label) != plain[name] for name in names)


def test_an_unknown_finding_and_verb_are_not_found(db: None, operator: Client) -> None:
    finding = found()
    assert operator.get("/diagnosis/findings/999/").status_code == 404
    assert operator.get(f"/diagnosis/findings/{finding.pk}/kv_admit/explode/").status_code == 404
    assert operator.get(f"/diagnosis/findings/{finding.pk}/nothing/apply/").status_code == 404


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.9712, "ratio", "97.1 %"),
        (12.0, "count", "12"),
        (0.25, "seconds", "0.25 s"),
        (98304, "tokens", "98,304 tokens"),
        (1.0, "requests", "1 request"),
        (1.25, "requests", "1.25 requests"),
        (3 * 2**30, "bytes", "3 GiB"),
        (0, "bytes", "0 B"),
        (71.26, "celsius", "71.3 °C"),
    ],
)
def test_values_are_shown_with_their_units(value: float, unit: str, shown: Any) -> None:
    with override("en"):
        assert shown_value(value, unit) == shown


def test_a_finding_that_is_over_says_since_when(db: None, viewer: Client) -> None:
    finding = found()
    Finding.objects.update(state=FindingState.CLEARED, cleared_at=timezone.now() - timedelta(minutes=30))
    assert "over 30 min ago" in text_of(viewer.get(f"/diagnosis/findings/{finding.pk}/").content.decode())


def test_the_overview_names_the_surest(db: None, viewer: Client) -> None:
    assert "The diagnosis finds no bottleneck." in viewer.get("/overview/").content.decode()
    found()
    for address in ("/overview/", "/overview-panel/"):
        page = viewer.get(address).content.decode()
        assert "KV cache exhausted · Pool kv kv: the KV cache is 97 % full confidence 90 %" in text_of(page)
        assert '<a href="/pools/kv/">Pool kv</a>' in page


def test_a_finding_leads_to_its_pools_and_names_its_place_in_words(db: None, viewer: Client) -> None:
    finding = found()
    page = viewer.get(f"/diagnosis/findings/{finding.pk}/").content.decode()
    assert "<h1>KV cache exhausted · Pool kv</h1>" in page
    assert '<a href="/pools/kv/">kv</a>' in page
    page = viewer.get(f"/diagnosis/findings/{finding.pk}/", headers={"accept-language": "tr"}).content.decode()
    assert "· Havuz kv</h1>" in page


@pytest.mark.parametrize(
    ("subject", "said", "address"),
    [
        ("pool/a", "Pool a", "/pools/a/"),
        ("node/rack-1", "Node rack-1", "/fleet/rack-1/"),
        ("tenant/acme", "Tenant acme", "/tenants/acme/"),
        ("engine/e-1", "Engine e-1", ""),
        ("gateway/g-1", "Gateway g-1", ""),
        ("pool/a/b", "Pool a/b", ""),
        ("rack/7", "rack/7", ""),
    ],
)
def test_a_place_is_said_in_words_and_leads_to_its_page_if_it_has_one(subject: str, said: str, address: str) -> None:
    with override("en"):
        assert (place(subject), place_address(subject)) == (said, address)
