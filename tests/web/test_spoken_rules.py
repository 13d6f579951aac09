"""Titles and descriptions of the rules that come with the program are said in the reader's language."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils.translation import gettext, override

from controlplane.alerts.annotation import rendered
from controlplane.alerts.services.rule_pack import PackRule, pack_rules
from controlplane.web.shown.spoken import rule_pack, spoken
from tests.web.hardware import fault, node

# More than any rule has; those of a node or a gateway have one of the two.
LABELS = {
    name: f"the-{name}"
    for name in (
        "detector", "engine", "gpu", "model", "node", "path", "pci_bus_id", "phase", "pool", "probe", "reason",
        "receiver", "slo", "spool", "tenant", "token", "user", "writer",
    )
}  # fmt: skip
RULES = list(pack_rules())


def turkish(text: str) -> str:
    with override("tr"):
        return spoken(text)


def test_every_rule_of_the_pack_has_a_turkish_form() -> None:
    with override("tr"):
        assert [(rule, form) for rule, form in rule_pack.by_rule() if gettext(form) == form] == []
    assert {rule for rule, _form in rule_pack.by_rule()} == {rule.name for rule in RULES}


def test_no_template_holds_what_its_form_cannot_name() -> None:
    assert [form for form in rule_pack.forms() if "{{" in form] == []


@pytest.mark.parametrize("value", [0.004, 0.5, 1, 96.5, 4321.0, 93_784.0, float("nan")])
def test_whatever_a_rule_says_is_said_with_its_names(value: float) -> None:
    unsaid = []
    for rule in RULES:
        labels = LABELS | ({"gateway": "edge-1", "kind": "gateway"} if "Token" in rule.name else {})
        for text in texts_of(rule):
            english = rendered(text, labels, value)
            said = turkish(english)
            named = [name for name in labels.values() if name in english]
            if said == english or not all(name in said for name in named):
                unsaid.append((rule.name, english, said))
    assert unsaid == []


def texts_of(rule: PackRule) -> list[str]:
    return [text for name in rule_pack.TEXTS if (text := rule.fields["annotations"].get(name))]


@pytest.mark.parametrize(
    ("title", "said"),
    [
        (
            "Engine a on rack-1 does not answer its health page",
            "rack-1 düğümündeki a motorunun sağlık sayfası yanıt vermiyor",
        ),
        (
            "Pool chat: 12.5% of requests are refused (503 queue_full)",
            "chat havuzu: isteklerin %12,5 kadarı reddediliyor (503 queue_full)",
        ),
        (
            "Pool chat: 12.5% of requests are refused (503 queue_full) and 3 more",
            "chat havuzu: isteklerin %12,5 kadarı reddediliyor (503 queue_full) ve 3 tane daha",
        ),
        (
            "gateway edge-1 has not applied a revision that is 1h 2m 3s old",
            "gateway edge-1: 1 sa 2 dk 3 sn önceki revizyonu hâlâ uygulamadı",
        ),
        (
            "node rack-1: its token ends in 2d 0h 0m 5s",
            "düğüm rack-1: belirteci 2 gün 0 sa 0 dk 5 sn sonra bitiyor",
        ),
        # A site's own rule.
        ("Pool chat: somebody asks too much", "Pool chat: somebody asks too much"),
    ],
)
def test_a_title_is_said_in_the_readers_language(title: str, said: str) -> None:
    assert turkish(title) == said
    assert spoken(title) == title


@pytest.mark.django_db
def test_an_incident_is_called_so_on_its_pages(viewer: Client) -> None:
    node("rack-1")
    incident = fault("rack-1", "GPU 3 (NVIDIA H100, 0000:1B:00.0) is lost")
    said = "GPU 3 (NVIDIA H100, 0000:1B:00.0) kayboldu"
    for path in ("/overview/", "/incidents/", f"/incidents/{incident.pk}/"):
        assert f"rack-1: {said}" in viewer.get(path, headers={"accept-language": "tr"}).content.decode(), path
        assert "is lost" in viewer.get(path).content.decode(), path
    assert said in viewer.get("/fleet/rack-1/", headers={"accept-language": "tr"}).content.decode()
    assert viewer.get(f"/api/v1/incidents/{incident.pk}").json()["title"].endswith("is lost")
