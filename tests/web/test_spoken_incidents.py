"""The time line of an incident is said in the reader's language, and every line that a service writes has a form."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone
from django.utils.translation import override

from controlplane.alerts.services import incidents
from controlplane.web.shown.spoken import spoken
from tests.web.hardware import fault
from tests.web.test_spoken import CONTROLPLANE, HOLE, texts_of

# Where the words stand in the calls that write a line.
WRITING = {
    "note": 2, "resolve_alert": 2, "resolve_alerts": 2, "_resolve": 2, "_say": 2, "_write": 4, "end": 2,
    "end_incident": 2, "_forget_series": 1,
}  # fmt: skip
FILES = (
    "alerts/steps.py", "diagnosis/services/alerting.py", "remediation/services.py",
    *(f"alerts/services/{name}.py" for name in (
        "alerts", "attempts", "breakers", "cordons", "evaluations", "incident_acts", "notifying", "rules", "settling",
    )),
)  # fmt: skip
# A value that a line may hold: a name, a state, a number, what was snoozed, a reason.
SAMPLES = ("a", "warning", "firing", "removed", "7", "snoozed until 2026-12-01 03:00 UTC", ": a")


def turkish(text: str) -> str:
    with override("tr"):
        return spoken(text)


def lines() -> Iterator[str]:
    for file in FILES:
        for part in ast.walk(ast.parse((CONTROLPLANE / file).read_text())):
            if isinstance(part, ast.Call):
                name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
                given = part.args[WRITING.get(name, len(part.args)) :][:1]
                given += [each.value for each in part.keywords if each.arg == "text"]
                yield from (text for each in given for text in texts_of(each))
            elif isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "text":
                yield from texts_of(part.value)


def test_whatever_is_written_into_a_time_line_has_a_form() -> None:
    texts = {text for text in lines() if re.search("[a-z]{2}", text.replace(HOLE, ""))}
    assert len(texts) > 12
    unsaid = [text for text in texts if all(turkish(sample) == sample for sample in samples_of(text))]
    assert unsaid == []


def samples_of(text: str) -> Iterator[str]:
    for value in SAMPLES:
        yield text.replace(HOLE, value)
        # The first value alone, as that of a kind or a state.
        yield text.replace(HOLE, value, 1).replace(HOLE, "a")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "the rule's condition holds since 2026-12-01 03:00:00 UTC, value 0.97",
            "kuralın koşulu 2026-12-01 03:00:00 UTC'den beri sağlanıyor, değer 0.97",
        ),
        ("warning becomes critical", "önem uyarı iken kritik oldu"),
        ("snoozed until 2026-12-01 03:00 UTC by olga: later", "2026-12-01 03:00 UTC'ye dek ertelendi, olga: later"),
        ("assigned to nobody by olga: off duty", "atamayı kaldıran olga: off duty"),
        ("assigned to vera by olga: hers", "vera adına atayan olga: hers"),
        ("the engine was removed by olga: broken", "motor kaldırıldı, olga: broken"),
        ("oncall was told that it is firing, in 1 attempt", "oncall alıcısına bildirildi: sürüyor (1 deneme)"),
        (
            "oncall could not be told that it is resolved, in 7 attempts: HTTP 500",
            "oncall alıcısına bildirilemedi: çözüldü (7 deneme): HTTP 500",
        ),
        (
            "node rack-1 is cordoned by the policy; of pool chat the class batch may fill 40 %, no more 60 %",
            "rack-1 düğümünü kural devre dışı bıraktı; batch sınıfı chat havuzunun artık %60 değil, %40 kadarını "
            "doldurabilir",
        ),
        # A person's own words.
        ("olga: I look at it", "olga: I look at it"),
    ],
)
def test_a_line_is_said_in_the_readers_language(line: str, said: str) -> None:
    assert turkish(line) == said
    assert spoken(line) == line


@pytest.mark.django_db
def test_the_page_of_an_incident_says_its_time_line(viewer: Client) -> None:
    incident = fault("rack-1")
    with transaction.atomic():
        incidents.note(incident, "muted", "nobody is told: silence night", timezone.now())
    page = viewer.get(f"/incidents/{incident.pk}/", headers={"accept-language": "tr"}).content.decode()
    assert "kimseye bildirilmiyor: silence night" in page
    assert "nobody is told" in viewer.get(f"/incidents/{incident.pk}/").content.decode()
