"""What services say is said in the reader's language, and every form of it is one that a service still says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings
from django.utils.translation import gettext, override

from controlplane.alerts import runbooks
from controlplane.web.shown.evidence import evidence_label
from controlplane.web.shown.reasons import MEANS
from controlplane.web.shown.runbook_text import THEMES
from controlplane.web.shown.spoken import FORMS, spoken
from gateway.refusals import REASONS

CONTROLPLANE = Path(settings.BASE_DIR)
ROOT = CONTROLPLANE.parent
SERVICES = [
    *(CONTROLPLANE / app for app in ("rollouts", "fleet", "configs", "tenants", "diagnosis", "alerts", "remediation")),
    *(CONTROLPLANE / app for app in ("core", "planner")),
    *(ROOT / folder for folder in ("gpu_agent", "policy", "simulator", "wire")),
]
# What ends up as `said` of a rollout or of a step, by the function that takes it.
SAYING = {"waits": 0, "_as_heard": 1, "done": 0, "failed": 0, "Verdict": 1, "Decision": 1, "_set_state": 2}
HOLE = "\0"
# How those begin that are put together of pieces where they are said.
COMPOSED = (
    "%(act)s needs", "%(act)s is for a node", "%(command)s ", "%(count)s more of it", "%(count)s processes hang",
    "%(promised)s of", "%(value)s, as", "%(where)s ", "KV capacity %(before)s", "NVML is unresponsive", "SXid ",
    "TTFT 2 s", "XID ", "a process of the runs", "and %(count)s ranks", "assigned to", "cordoned by",
    "engine %(engine)s (", "is there enough", "it is no JSON object", "remediation ", "tensor parallel %",
    "that of an 8B", "the fetch command", "this machine",
)  # fmt: skip
_JOINT = re.compile(rf"[{HOLE}(),:;]| by ")


def turkish(text: str) -> str:
    with override("tr"):
        return spoken(text)


@pytest.mark.parametrize(
    ("said", "in_turkish"),
    [
        ("every condition held", "tüm koşullar sağlandı"),
        (
            "waits for gateway/edge-1, gateway/edge-2 and 3 more",
            "bekleniyor: gateway/edge-1, gateway/edge-2 ve 3 tane daha",
        ),
        ("the new side lost b-1: it does not answer", "yeni taraf motor yitirdi: b-1: yanıt vermiyor"),
        (
            "after 600 s not ready: b-1: probe chat failed, b-2: it is hung",
            "600 sn sonra: hazır değil: b-1: chat sınaması başarısız, b-2: takıldı",
        ),
        (
            "not healthy: ttft_p95; the old side cannot serve either (a: it is hung), so it stays",
            "sağlıklı değil: ttft_p95; eski taraf da hizmet veremiyor (a: takıldı), bu yüzden olduğu gibi kalıyor",
        ),
        ("moves 25 % to chat-next", "trafiğin %25'i chat-next havuzuna taşınıyor"),
        ("could not drain: a failed: it has 3 requests", "yapılamadı (boşaltma): a failed: it has 3 requests"),
        ("warm_up begins", "başlıyor: Isıt"),
        ("promoted by hand", "elle herkese verildi"),
        ("would reset_gpu; the policy observes only", "politika yalnızca izliyor; yapılacak olan: GPU'yu sıfırla"),
        (
            "would restart_engines; the policy observes only",
            "politika yalnızca izliyor; yapılacak olan: Motorları yeniden başlat",
        ),
        ("rack-1: GPU temperature", "rack-1: GPU sıcaklığı"),
        ("pool chat, the last hour", "chat havuzu, son bir saat"),
        ("max_num_seqs: 4,096, as no engine reports it", "max_num_seqs: 4.096, çünkü hiçbir motor bildirmiyor"),
        ("clear for 90 s", "90 sn boyunca temiz"),
        ("there is no priority class 'night'", "“night” adlı öncelik sınıfı yok"),
        (
            "pool 'chat': its engines differ in version: 0.11.0 on a; 0.12.0 on b; a site's own reason",
            "“chat” havuzu: motorları şurada ayrılıyor: version: 0.11.0 on a; 0.12.0 on b; a site's own reason",
        ),
        (
            "engine 'a' has version 0.9; >=0.11 is needed; it takes response_format and does not hold to it",
            "“a” motorunda version 0.9; gereken: >=0.11; response_format'ı alıyor ama ona uymuyor",
        ),
        # Of a later version, or of a person: as it is.
        ("something that nobody has said yet", "something that nobody has said yet"),
        ("", ""),
    ],
)
def test_a_sentence_is_said_in_the_readers_language(said: str, in_turkish: str) -> None:
    assert turkish(said) == in_turkish
    assert spoken(said) == said


def test_however_many_sentences_there_are_each_is_said() -> None:
    """An address of what there is not may hold any text."""
    assert turkish("; ".join(["healthy", "nothing yet"] * 600)) == "; ".join(["sağlıklı", "nothing yet"] * 600)


@pytest.mark.parametrize(
    "text",
    [
        "pool 'a': " * 3000 + "healthy",
        "after 5 s " * 3000 + "healthy",
        "; ".join(["engine 'a' has b c"] * 600),
        "engine a (b) is " * 3000 + ": c",
        "1 of 2 " * 3000 + "tokens would be promised",
        "a: " * 3000 + "healthy",
        # What no service says, in the forms of what they say.
        "node rack-1: its token ends in 1.5h",
        f"clear for {'9' * 310} s",
        "the limits of , tenants promise 5 tokens",
        "the limits of 1,2,3 tenants promise 4,194,304 tokens",
    ],
)
def test_a_text_that_holds_itself_over_and_over_is_said_all_the_same(text: str) -> None:
    """A part of an address may be any text."""
    assert turkish(text)


def test_every_form_is_one_that_a_service_says_and_is_translated() -> None:
    assert len(set(FORMS)) == len(FORMS)
    assert [form for form in FORMS if not is_said(form)] == []
    with override("tr"):
        assert [form for form in FORMS if gettext(form) == form] == []


def is_said(form: str) -> bool:
    bare = re.sub(r"%\(\w+\)s", HOLE, form).replace("%%", "%")
    # A beginning that is given with what is missing; a reason that a site wrote; what is said of somebody.
    beginning, reason = bare.removesuffix(f": {HOLE}"), bare.removesuffix(f"; {HOLE}")
    counted = bare.replace("1 key", HOLE).replace(f"{HOLE} keys", HOLE)
    counted = re.sub(f"(1|{HOLE}) attempts?", f"{HOLE} attempt{HOLE}", counted)
    wholes = {bare, beginning, reason, counted, f"{HOLE}: {bare}", f"{HOLE}; {bare}"}
    return bool(wholes & said_by_services()) or (form.startswith(COMPOSED) and is_composed(bare))


def is_composed(bare: str) -> bool:
    return all(any(piece.strip() in text for text in said_by_services()) for piece in _JOINT.split(bare))


def test_whatever_a_rollout_says_has_a_form() -> None:
    samples = [text.replace(HOLE, "drain") for text in said_by_rollouts()]
    assert len(samples) > 30
    assert [text for text in samples if turkish(text) == text] == []


def test_every_reason_of_a_gateway_is_said() -> None:
    assert {name: str(text) for name, text in MEANS.items()} == {name: row.means for name, row in REASONS.items()}
    with override("tr"):
        assert [name for name, text in MEANS.items() if str(text) == REASONS[name].means] == []


def test_themes_of_runbooks_are_in_the_readers_language() -> None:
    assert tuple(title for title, _entries in runbooks.by_theme()) == THEMES
    with override("tr"):
        assert [title for title in THEMES if gettext(title) == title] == []


def test_every_piece_of_evidence_is_called_by_words_of_the_reader() -> None:
    names = {
        str(node.args[0].value)
        for file in (CONTROLPLANE / "diagnosis").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Evidence"
        if isinstance(node.args[0], ast.Constant)
    }
    assert len(names) > 50
    assert {evidence_label(name) for name in names} == {name.replace("_", " ") for name in names}
    with override("tr"):
        assert [name for name in sorted(names) if evidence_label(name) == name.replace("_", " ")] == []


@cache
def said_by_services() -> set[str]:
    """Every text of the services, a hole for each value in it."""
    files = [file for folder in SERVICES for file in folder.rglob("*.py")]
    return {text for file in files for node in ast.walk(ast.parse(file.read_text())) for text in texts_of(node)}


def said_by_rollouts() -> Iterator[str]:
    for file in ("rules.py", "verdicts.py", "machine.py", "services.py"):
        for node in ast.walk(ast.parse((CONTROLPLANE / "rollouts" / file).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAYING:
                given = node.args[SAYING[node.func.id] :][:1]
                yield from (text for each in given for text in texts_of(each) if text.strip(HOLE))


def texts_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield re.sub(f"{HOLE}+", HOLE, "".join(map(part_of, node.values)))
    elif isinstance(node, ast.IfExp):
        yield from (*texts_of(node.body), *texts_of(node.orelse))


def part_of(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        return f"'{HOLE}'" if part.conversion == ord("r") else HOLE
    assert isinstance(part, ast.Constant)
    return str(part.value)
