"""What the planner and what-if runs say of their numbers is said in the reader's language, whatever is planned."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils.translation import override

from controlplane.planner import promises
from controlplane.web.shown.spoken import spoken
from policy.planning import lengths as of_lengths
from policy.planning.architectures import shape_of
from policy.planning.gpus import GPU_BY_NAME, Machines
from policy.planning.known import KNOWN
from policy.planning.plan import Ask, Plan, make
from policy.planning.start import Value
from simulator.scheduler import Limits
from tests.web.test_planner import sent
from wire.canonical import Document

MODELS = ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.3-70B", "deepseek-ai/DeepSeek-V3")
GPUS = ("H100-SXM", "A100-80GB-PCIe", "L4")
FLEETS = ((1, 1), (8, 1), (8, 4), (1, 4))


def turkish(text: str) -> str:
    with override("tr"):
        return spoken(text)


def ask(model: str, gpu: str, fleet: tuple[int, int], **more: Any) -> Ask:
    given: dict[str, Any] = {"weights": "bf16", "kv_dtype": "bf16", "context_tokens": 8192, **more}
    prompts, outputs = of_lengths.fixed(given.pop("prompt", 1000)), of_lengths.fixed(200)
    machines = Machines(GPU_BY_NAME[gpu], *fleet, given.pop("link"))
    return Ask(shape_of(KNOWN[model]), machines, prompts=prompts, outputs=outputs, **given)


def plans() -> Iterator[Plan]:
    for model, gpu, fleet, link in itertools.product(MODELS, GPUS, FLEETS, ("nvlink", "pcie")):
        yield make(ask(model, gpu, fleet, link=link))
    small = (MODELS[0], "H100-SXM", (1, 1))
    yield make(ask(*small, link="nvlink", tpot_ms=20))
    yield make(ask(*small, link="nvlink", tpot_ms=3_600_000))
    yield make(ask(*small, link="nvlink", batched_tokens=4096, prompt=1))
    yield make(ask(*small, link="nvlink", kv_dtype="fp8", prompt=10, context_tokens=256))
    yield make(ask(MODELS[0], "L4", (1, 1), link="pcie", context_tokens=131_072))
    yield make(ask(MODELS[0], "L4", (1, 1), link="pcie", weights="fp8", context_tokens=131_072))


def said_by(plan: Plan) -> Iterator[str]:
    for step in plan.choice.steps:
        yield from step
    yield from (remedy.says for remedy in plan.remedies)
    if plan.start is not None:
        values = (plan.start.max_num_seqs, plan.start.max_num_batched_tokens, plan.start.queue_cap)
        yield from (value.why for value in values if isinstance(value, Value))


def test_whatever_a_plan_says_has_a_form() -> None:
    texts = {text for plan in plans() for text in said_by(plan)}
    assert len(texts) > 60
    assert {text for text in texts if turkish(text) == text} == set()
    # No part of a sentence is left as it was.
    assert [said for text in texts if {"the", "and", "of", "is"} & set((said := turkish(text)).split())] == []


def pools(**change: Any) -> Document:
    known = {
        "pool": "chat", "verdict": "no", "admissible_tokens": 1000, "share_tokens": 500, "promised_tokens": 1200,
        "promised_permille": 1200, "missing_tokens": 200, "tenants_without_bound": 0,
    }  # fmt: skip
    return known | change


@pytest.mark.parametrize(
    "pool",
    [
        pools(),
        pools(tenants_without_bound=3),
        pools(verdict="yes", promised_tokens=810, promised_permille=810),
        pools(verdict="yes", promised_tokens=810, promised_permille=810, tenants_without_bound=1),
        pools(admissible_tokens=0, promised_permille=None),
        pools(admissible_tokens=None),
        pools(share_tokens=None),
    ],
)
def test_a_promise_is_answered_in_the_readers_language(pool: Document) -> None:
    said = turkish(promises._in_words("acme", 5, [pool, pool]))
    assert said.count("“chat” havuzu: ") == 2
    assert not {"tokens", "pool", "would", "not"} & set(said.split())


def test_a_promise_without_a_pool_is_answered_too() -> None:
    assert turkish(promises._in_words("acme", 5, [])).startswith("hiçbir rota “acme” kiracısını")


@pytest.mark.parametrize(
    ("said", "in_turkish"),
    [
        (
            "max_num_seqs: around 1,024, vLLM's default, as no engine reports it",
            "max_num_seqs: 1.024 çevresi, vLLM'in varsayılanı, çünkü hiçbir motor bildirmiyor",
        ),
        (
            "kv_capacity_tokens: 400,000, as no engine reports it",
            "kv_capacity_tokens: 400.000, çünkü hiçbir motor bildirmiyor",
        ),
        (
            "speed: that of an 8B model on one H100, as calibrate is false",
            "speed: tek H100 üzerinde 8B bir modelinki, çünkü calibrate kapalı",
        ),
        (
            "slo: TTFT 2 s and TPOT 100 ms, as the pool has none",
            "slo: TTFT 2 sn ve TPOT 100 ms, çünkü havuzun SLO'su yok",
        ),
        (
            "a process of the runs ended with status -9; is there enough memory? Give smaller loads, or fewer "
            "measured_seconds",
            "koşuların bir süreci -9 çıkış koduyla bitti; bellek yetiyor mu? Daha küçük yükler ya da daha az "
            "measured_seconds verin",
        ),
        (
            "/slo: goodput needs an SLO; give ttft_ms, tpot_ms or e2e_ms; /loads: 20,000 requests/s are more than "
            "10,000",
            "/slo: goodput için SLO gerekir; ttft_ms, tpot_ms ya da e2e_ms verin; /loads: saniyede 20.000 istek, üst "
            "sınır 10.000",
        ),
    ],
)
def test_what_a_what_if_says_is_said_in_the_readers_language(said: str, in_turkish: str) -> None:
    assert turkish(said) == in_turkish


@pytest.mark.parametrize("change", [{"max_num_batched_tokens": 8}, {"max_model_len_tokens": 500_000}])
def test_why_an_engine_would_not_start_is_said(change: dict[str, int]) -> None:
    given = {
        "kv_capacity_tokens": 16_384,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 2048,
        "max_model_len_tokens": 2048,
    }
    with pytest.raises(ValueError, match=r"must be|needs more") as refused:
        Limits(**{**given, **change})
    assert turkish(str(refused.value)) != str(refused.value)


@pytest.mark.django_db
def test_the_planners_page_says_its_tree_in_turkish(viewer: Client) -> None:
    viewer.cookies["django_language"] = "tr"
    page = sent(viewer)
    assert "Model tek bir GPU&#x27;ya sığıyor mu?</strong> hayır: 32768 tokenlik tek bir dizi için 8,7 GB eksik" in page
    assert "Does the model" not in page
