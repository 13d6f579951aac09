"""What agents say of acts and in events is said in the reader's language, and every text of theirs has a form."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import product
from typing import Literal, NamedTuple, get_args

import pytest
from django.test import Client
from django.utils.translation import override

from controlplane.alerts.health import judge
from controlplane.fleet.models import Engine, ModelVersion
from controlplane.fleet.services import engines, versions
from controlplane.remediation import services as remediation
from controlplane.remediation.models import Remediation
from controlplane.rollouts.models import Rollout
from controlplane.web.shown.spoken import spoken
from gpu_agent.engines import tell
from gpu_agent.nvml import health as gpu_health
from gpu_agent.nvml.readings import GpuState
from tests.web.hardware import add_engine, node
from tests.web.test_spoken import HOLE, ROOT, texts_of
from wire.messages import Condition, EngineReport
from wire.snapshot import NodeEngine


class Happened(NamedTuple):
    node: str
    kind: str
    subject: str
    severity: str
    detail: str


ENGINE = NodeEngine("http://10.2.0.7:8000", "vllm", "chat", "m")
STANDS = "requests running 3, nothing moved since 2026-12-01 03:00:00 UTC"
# What stands for a value: a word, a command's name or its end, a number.
SAMPLES = ("drain", "the restart command", "ended with status 3", "7")
# For the agent's log alone.
LOGGED = {"_said(act: Act)"}


def turkish(text: str) -> str:
    with override("tr"):
        return spoken(text)


def said_of_acts() -> Iterator[str]:
    for file in (ROOT / "gpu_agent/acts").glob("*.py"):
        for part in ast.walk(ast.parse(file.read_text())):
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from said_by(part)
            elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
                place = {"refused": 1, "failed": 1, "NotDone": 2}.get(part.func.id, len(part.args))
                yield from (text for each in part.args[place : place + 1] for text in texts_of(each))


def said_by(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """What it answers, where that is words."""
    if f"{function.name}({ast.unparse(function.args)})" in LOGGED or not function.returns:
        return
    if ast.unparse(function.returns) != "str":
        return
    for part in ast.walk(function):
        if isinstance(part, ast.Return) and part.value is not None:
            yield from texts_of(part.value)


def test_whatever_an_agent_says_of_an_act_has_a_form() -> None:
    texts = {text for text in said_of_acts() if re.search("[a-z]{3}", text.replace(HOLE, ""))}
    assert len(texts) > 70
    unsaid = [text for text in texts if all(turkish(sample) == sample for sample in samples_of(text))]
    assert unsaid == []


def samples_of(text: str) -> Iterator[str]:
    yield from (text.replace(HOLE, value) for value in SAMPLES)


@pytest.mark.parametrize(
    ("said", "in_turkish"),
    [
        ("its agent had begun it when it was cancelled", "iptal edildiğinde ajanı onu başlatmıştı"),
        (
            "it takes new requests; cordon it or its node first, and drain it",
            "yeni istek alıyor; önce onu ya da düğümünü devre dışı bırakıp boşaltın",
        ),
        (
            "restart is not allowed by this node's policy; on engine a it allows drain, sleep",
            "bu düğümün kuralları restart eylemine izin vermiyor; a motorunda izin verilenler: drain, sleep",
        ),
        (
            "reboot is not allowed by this node's policy; on the node itself it allows nothing",
            "bu düğümün kuralları reboot eylemine izin vermiyor; düğümün kendisinde izin verilenler: yok",
        ),
        (
            "KV capacity 400,000 → 420,000 tokens; served after 42 s; before: max-num-seqs=64",
            "KV kapasitesi 400.000 → 420.000 token; 42 sn sonra hizmet verdi; önceki: max-num-seqs=64",
        ),
        (
            "the former arguments are back, and it serves with them; what went wrong: the restart command ended with "
            "status 3, and wrote last: no; such unit",
            "önceki argümanlar geri kondu; onlarla hizmet veriyor; ters giden: yeniden başlatma komutu 3 çıkış koduyla "
            "bitti; son yazdığı: no; such unit",
        ),
        (
            "after 600 s 3 requests run and 1 wait",
            "600 sn sonra: 3 istek çalışıyor, 1 istek bekliyor",
        ),
        (
            "it does not serve 900 s after its restart: /health answered 503 loading",
            "900 sn geçti, hâlâ hizmet vermiyor (yeniden başlatma): /health yanıtı: 503 loading",
        ),
        (
            "the files are damaged: differ: a.safetensors, b.safetensors and 2 more; lack: c.safetensors",
            "dosyalar bozuk: farklı: a.safetensors, b.safetensors ve 2 tane daha; eksik: c.safetensors",
        ),
        ("/v1/load_lora_adapter answered 400 bad; name", "/v1/load_lora_adapter yanıtı: 400 bad; name"),
    ],
)
def test_what_an_agent_says_of_an_act_is_said_in_the_readers_language(said: str, in_turkish: str) -> None:
    assert turkish(said) == in_turkish
    assert spoken(said) == said


def events() -> Iterator[tuple[str, str]]:
    """Kind and detail of every event that tells of GPUs, engines and the machine."""
    conditions = get_args(Condition)
    asked_for: tuple[Literal["", "restart", "stop"], ...] = ("", "restart", "stop")
    for before, after, asked in product(conditions, conditions, asked_for):
        seen = EngineReport("a", "up", condition=after, error=f"hung: rank 0: {STANDS}")
        for told in tell.told_of_condition(before, ENGINE, seen, asked=asked):
            yield told.kind, told.detail
    for told in (
        tell.told_of_overdue_restart(ENGINE, EngineReport("a", "down", condition="dead", error="refused")),
        tell.told_of_restart("a", ENGINE, asked=True),
        tell.told_of_restart("a", ENGINE, asked=False),
        tell.told_of_failed_probe("a", ENGINE, "chat", "no answer"),
        tell.told_of_held_probe("a", ENGINE, "chat"),
    ):
        yield told.kind, told.detail
    for state in get_args(GpuState):
        if change := gpu_health.change("ok" if state != "ok" else "lost", state):
            yield change.kind, f"GPU 3 (NVIDIA H100, 0000:1B:00.0) {change.says}"
    xid = "XID 79 (GPU has fallen off the bus) on"
    yield "xid", f"{xid} the GPU at 0000:1B:00.0: class hardware, action cordon_reboot, then contact_support"
    yield "xid", f"{xid} GPU 3 (NVIDIA H100, 0000:1B:00.0): class hardware, action reset_gpu; XID 31 is over"
    on_a_part = "GPU 3 (H100, 0000:1B:00.0), MIG instance 1"
    yield "xid", f"{xid} {on_a_part}: class driver, action none; 3 more of it since the last event"
    yield "sxid", "SXid 20034 on the NVSwitch at 0000:05:00.0: LTSSM Fault Up"
    yield "nvml_failed", "NVML did not open within 30 s"
    yield "nvml_failed", "NVML is unresponsive: no GPU answers"
    yield "nvml_failed", "the process that reads NVML ended with exit status -9"
    yield "spot_notice", "this machine will be taken away in 120 s, at 2026-12-01 03:00:00 UTC: AWS will terminate it"
    yield "spot_notice", "this machine will be taken away: Google Cloud preempts it"


@pytest.mark.parametrize(("kind", "detail"), sorted(set(events())))
def test_an_event_and_the_incident_that_it_opens_are_said_in_the_readers_language(kind: str, detail: str) -> None:
    assert turkish(detail) != detail
    title = judge(Happened("rack-1", kind, "GPU-3", "critical", detail)).title
    assert turkish(title) != title or not title
    assert turkish(title).startswith("rack-1: ") or not title
    assert not {"is", "on", "will", "of"} & set(turkish(title).split())


def test_who_holds_an_engine_out_of_service_is_named_in_the_readers_language() -> None:
    holders = [
        Rollout(pk=5).holder,
        remediation.holder(Remediation(pk=6)),
        versions._holder(ModelVersion(pk=7)),
        engines.LEAVING,
    ]
    assert [turkish(holder) for holder in holders] == [
        "yayılım 5",
        "onarım 6",
        "emekliye ayrılan sürüm 7",
        "onu sonlandırmak üzere olan düğümü",
    ]
    refused = f"engine 'a' is held out of service by {holders[0]}"
    assert turkish(refused) == "“a” motorunu hizmet dışında tutan: yayılım 5"


@pytest.mark.django_db
def test_the_page_of_a_node_names_the_holder_and_says_what_its_engine_lacks(viewer: Client) -> None:
    add_engine("a", node("rack-1"))
    Engine.objects.update(held_out_by="rollout 5", error="hung: requests running 3, nothing moved since x UTC")
    page = viewer.get("/fleet/rack-1/", headers={"accept-language": "tr"}).content.decode()
    assert "yayılım 5" in page
    assert "takıldı: çalışan istek 3" in page
