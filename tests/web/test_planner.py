"""The planner's pages: what is typed becomes the REST call's body, and its answer a picture and tables."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.configs.models import PoolMeans
from controlplane.core.fields import epoch_ms
from controlplane.fleet.models import Engine, Gpu, Node
from controlplane.fleet.services import ENGINES, MODELS, POOLS
from controlplane.routing.services import ROUTES
from controlplane.telemetry.decisions import sketches
from controlplane.web.forms.plan import CALLS_EXAMPLE, RATES_EXAMPLE
from controlplane.web.shown.planned_pool import known_model
from policy.planning.known import KNOWN
from tests.web.conftest import write
from wire.sketches import MINUTE_MS, Sketch, bucket_of

LLAMA = "meta-llama/Llama-3.3-70B"
PLAN = {
    "model": LLAMA, "weights": "fp8", "kv_cache_dtype": "bf16", "context_tokens": "32768", "gpus": "known:H100-SXM",
    "per_node": "8", "utilisation_permille": "92", "lengths": "typed", "prompt": "p50=1500, p95=8000",
    "output": "mean=300, p95=900", "acceptable_wait_ms": "5",
}  # fmt: skip


def sent(client: Client, path: str = "/planner/", status: int = 200, **change: str) -> str:
    answer = client.post(path, {**PLAN, **change} if path == "/planner/" else change)
    assert answer.status_code == status, answer.content.decode()
    return answer.content.decode()


def body_of(page: str) -> Any:
    """What the page's curl line sends."""
    line = re.search(r'<pre id="curl-[a-z-]+">(.*?)</pre>', page, re.DOTALL)
    assert line
    text = re.search(r"--data '(.*?)' \\", unescape(line[1]), re.DOTALL)
    assert text
    return json.loads(text[1])


def cells(page: str, first: str) -> list[str]:
    """The texts of the table row whose first cell is `first`."""
    row = re.search(rf'<tr[^>]*><td class="title">(?:<code>)?{re.escape(first)}.*?</tr>', page, re.DOTALL)
    assert row, first
    return [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row[0], re.DOTALL)]


def test_the_form_offers_what_is_known(viewer: Client) -> None:
    page = viewer.get("/planner/").content.decode()
    assert all(f">{name}</option>" in page for name in (*KNOWN, "H100-SXM", "L4"))
    assert "/api/v1/plans/gpus" in page
    assert 'id="plan"' not in page


def test_a_plan_shows_its_tree_memory_settings_and_waits(viewer: Client) -> None:
    page = sent(viewer)
    assert "It fits" in page
    assert "Are they linked by NVLink?" in page
    assert re.findall(r'<rect class="plan-(\w+)"', page) == ["weights", "allowance", "kv", "left"]
    widths = [float(width) for width in re.findall(r'<rect class="plan-\w+" x="[\d.]+" y="0" width="([\d.]+)"', page)]
    assert sum(widths) == pytest.approx(1000, abs=0.3)
    assert cells(page, "max_num_seqs")[1] == "45"
    assert cells(page, "99.0 %")[2] == "99.0"
    assert cells(page, "tensor parallel")[:4] == ["tensor parallel chosen", "2", "1", "4"]
    points = [float(x) for x in re.findall(r"([\d.]+),[\d.]+", re.findall(r'<polyline points="([^"]*)"', page)[0])]
    assert points == sorted(points)
    # What was typed stays, for the next try.
    assert 'value="p50=1500, p95=8000"' in page


def test_the_page_s_curl_line_asks_for_the_same_plan(viewer: Client) -> None:
    body = body_of(sent(viewer, tensor_parallel="4", activation_bytes="2.5"))
    assert body == {
        "model": {"known": LLAMA},
        "gpus": {"known": "H100-SXM", "per_node": 8},
        "lengths": {"prompt": {"p50": 1500, "p95": 8000}, "output": {"mean": 300, "p95": 900}},
        "weights": "fp8", "kv_cache_dtype": "bf16", "context_tokens": 32_768, "utilisation_permille": 920,
        "activation_bytes": 2_500_000_000, "tensor_parallel": 4, "acceptable_wait_ms": 5000,
    }  # fmt: skip


def test_a_pasted_config_is_planned_with(viewer: Client) -> None:
    page = sent(viewer, model="pasted", config=json.dumps(KNOWN["Qwen/Qwen2.5-7B"]), weights="")
    assert "qwen2, 7.62 B" in page


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": "pasted", "config": "{"}, "this is not JSON"),
        ({"model": "pasted", "config": ""}, "this is not JSON"),
        ({"model": "pasted", "config": "[" * 100_000}, "nested too deep"),
        ({"model": "pasted", "config": '{"model_type": "bert"}'}, "model_type: &#x27;bert&#x27; is not known"),
        ({"model": "pasted", "config": '{"model_type": "llama"}'}, "hidden_size: the field"),
        ({"model": "pasted", "config": "x" * 600_000}, "at most 524288 characters"),
        ({"per_node": "0"}, "greater than or equal to 1"),
        ({"per_node": "-3"}, "greater than or equal to 1"),
        ({"gpus": "typed"}, "give one of `known`, `memory_bytes` and `fleet_node`"),
        ({"prompt": "1500"}, "give it as name=number"),
        ({"prompt": "mean=NaN"}, "is no whole number"),
        ({"prompt": "p95=9"}, "two percentiles at least"),
        ({"prefill_tokens_per_second": "nan", "decode_tokens_per_second": "5"}, "Enter a number"),
        ({"lengths": "measured"}, "no answered request was counted"),
        ({"tensor_parallel": "3"}, "does not share out 64 attention heads"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(viewer: Client, change: dict[str, str], says: str) -> None:
    page = sent(viewer, status=422, **change)
    assert says in page
    assert 'id="plan"' not in page


def test_what_does_not_fit_says_how_much_is_missing_and_what_would_do(viewer: Client) -> None:
    page = sent(viewer, per_node="1", weights="bf16")
    assert "It does not fit" in page
    assert re.search(r"Over 1 GPU, [\d.]+ GiB are missing on each\.", page)
    assert "weights in int4 instead of bf16" in page


@pytest.fixture
def chat(acme: str) -> str:
    """A pool whose only engine told its KV cache, on a node of one H200."""

    def make(unit: Any) -> None:
        MODELS.create(unit, LLAMA, {"max_context_tokens": 32_768})
        POOLS.create(unit, "chat", {"model": LLAMA})
        fields = {"url": "http://10.0.0.1:8000", "pool": "chat", "served_model": "m", "kv_capacity_tokens": 100_000}
        ENGINES.create(unit, "llama-a", fields)
        ROUTES.create(unit, "all", {"pools": {"chat": 1000}})

    write(make)
    node = Node.objects.create(name="rack-1")
    Gpu.objects.create(
        node=node, uuid="GPU-1", index=0, model="NVIDIA H200", memory_bytes=143_771 * 2**20, reported_at=timezone.now()
    )
    PoolMeans.objects.create(pool="chat", residence_seconds=12.0, context_tokens=2000.0, measured_at=timezone.now())
    return "chat"


def test_the_fleet_s_gpus_are_offered_and_engines_stand_beside_the_estimate(chat: str, viewer: Client) -> None:
    assert '<option value="fleet:rack-1">rack-1: 1 × H200</option>' in viewer.get("/planner/").content.decode()
    page = sent(viewer, gpus="fleet:rack-1", per_node="")
    assert "1 × H200" in page
    row = cells(page, "llama-a")
    assert row[:3] == ["llama-a", "chat", "100,000"]
    assert row[4].startswith("+")


def chosen(page: str, name: str) -> str:
    """What a field of the form holds."""
    field = re.search(rf'<(?:select name="{name}".*?</select>|input[^>]* name="{name}"[^>]*>)', page, re.DOTALL)
    assert field, name
    value = re.search(r'value="([^"]*)"(?: selected|[^<]*/?>$)', field[0])
    return value[1] if value else ""


def test_a_pool_fills_in_its_model_gpus_and_settings(chat: str, viewer: Client) -> None:
    started = {"tensor_parallel_size": "2", "gpu_memory_utilization": "0.85", "quantization": "fp8"}
    node = Node.objects.get(name="rack-1")
    Engine.objects.filter(name="llama-a").update(node=node, facts={"arguments": started})
    write(lambda unit: POOLS.update(unit, chat, {"engine_arguments": {"max-model-len": "16k"}, "tpot_slo_ms": 80}))
    page = viewer.get(f"/planner/?pool={chat}").content.decode()
    expected = {
        "model": LLAMA, "weights": "fp8", "kv_cache_dtype": "bf16", "context_tokens": "16000", "gpus": "fleet:rack-1",
        "utilisation_permille": "85", "tensor_parallel": "2", "pipeline_parallel": "", "lengths": "measured",
        "measured_pool": "chat", "rates": "chat", "tpot_slo_ms": "80", "compare_model": LLAMA,
    }  # fmt: skip
    assert {name: chosen(page, name) for name in expected} == expected
    assert "paste its config.json" not in page
    assert f'href="/planner/?pool={chat}"' in viewer.get(f"/pools/{chat}/").content.decode()


def test_a_pool_of_a_model_that_is_not_known_asks_for_its_file(chat: str, viewer: Client) -> None:
    def make(unit: Any) -> None:
        MODELS.create(unit, "own", {"max_context_tokens": 4096})
        POOLS.create(unit, "ours", {"model": "own"})

    write(make)
    page = viewer.get("/planner/?pool=ours").content.decode()
    assert "knows no model like own: paste its config.json" in page
    # Nothing was measured of it yet.
    assert (chosen(page, "lengths"), chosen(page, "rates")) == ("typed", "")
    assert viewer.get("/planner/?pool=nobody").status_code == 404


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("qwen2.5-72b", "Qwen/Qwen2.5-72B"),
        ("qwen2.5-7b-instruct-awq", "Qwen/Qwen2.5-7B"),
        ("llama-3.1-80b", "pasted"),
        ("chat", "pasted"),
    ],
)
def test_a_model_is_known_by_how_its_name_begins(name: str, model: str) -> None:
    assert known_model([name]) == model


def test_users_become_gpus_by_call_and_by_model(viewer: Client) -> None:
    page = sent(
        viewer, "/planner/fan-out/", users="1000", requests_per_user_per_hour="3.6", peak_permille="2",
        load_permille="80", calls=CALLS_EXAMPLE, rates=RATES_EXAMPLE,
    )  # fmt: skip
    assert "4.5 calls a request" in page
    # 2 requests a second: 300 and 4,000 × 0.7 and 0.5 × 6,000 × 0.3 read, 60 + 400 + 125 written, each.
    assert cells(page, "main") == ["main", "5.00", "8,000", "1,170", "1.25", "0.98", "3"]
    assert cells(page, "embedder")[-1] == "–"
    assert body_of(page)["calls"][3]["cached_permille"] == 300


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"users": "0"}, "greater than or equal to 1"),
        ({"calls": "generate prompt=-5"}, "is no number"),
        ({"calls": "generate prompt=nan"}, "is no number"),
        ({"calls": "generate tokens=5"}, "“tokens” is not known"),
        ({"calls": "generate"}, "Field required"),
        ({"rates": "other prefill=1 decode=1"}, "no call is of this model"),
        ({"rates": "main pool=nobody"}, "nobody"),
    ],
)
def test_a_fan_out_that_cannot_be_is_said_at_its_field(viewer: Client, change: dict[str, str], says: str) -> None:
    given = {
        "users": "10", "requests_per_user_per_hour": "1", "peak_permille": "1", "load_permille": "80",
        "calls": CALLS_EXAMPLE, "rates": RATES_EXAMPLE, **change,
    }  # fmt: skip
    assert says in sent(viewer, "/planner/fan-out/", 422, **given)


def test_a_promise_is_answered_with_what_it_makes_of_each_pool(chat: str, viewer: Client) -> None:
    page = viewer.get("/planner/promise/?tenant=acme&tpm=200000").content.decode()
    assert '<span class="state good">Yes</span>' in page
    assert cells(page, "chat")[2:6] == ["90,000", "13.3 %", "44.4 %", "40,000"]
    assert "450,000 tokens a minute at most" in page
    too_many = viewer.get("/planner/promise/?tenant=acme&tpm=900000").content.decode()
    assert '<span class="state bad">No</span>' in too_many
    assert cells(too_many, "chat")[6] == "90,000"


@pytest.mark.parametrize("query", ["tenant=nobody&tpm=5", "tenant=acme&tpm=-1", "tenant=acme&tpm=NaN", "tenant=acme"])
def test_a_promise_that_cannot_be_asked_for_is_said_at_its_field(chat: str, viewer: Client, query: str) -> None:
    answer = viewer.get(f"/planner/promise/?{query}")
    assert answer.status_code == 422
    assert "errorlist" in answer.content.decode()


def test_the_pages_speak_turkish(viewer: Client) -> None:
    viewer.cookies["django_language"] = "tr"
    page = sent(viewer)
    assert "Sığıyor" in page
    # A decimal comma is none in a picture.
    assert not re.search(r'(?:width|x|points)="[^"]*\d,\d[^" ]*,', page)


def test_measured_lengths_are_asked_for_of_a_pool_and_a_tenant(chat: str, viewer: Client) -> None:
    minute = epoch_ms(timezone.now()) // MINUTE_MS * MINUTE_MS - 10 * MINUTE_MS
    counted = [(bucket_of(900), 5)]
    sketch = Sketch(
        minute=minute, tenant="acme", pool="chat", arrivals=5, prompt_tokens=counted, output_tokens=counted
    )  # fmt: skip
    sketches.take("edge-1", [sketch], now_ms=minute)
    page = sent(viewer, lengths="measured", measured_pool="chat", tenant="acme", days="1")
    assert body_of(page)["lengths"] == {"measured": {"pool": "chat", "tenant": "acme", "days": 1}}
    assert "It fits" in page
