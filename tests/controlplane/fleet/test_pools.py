from __future__ import annotations

import msgspec
import pytest

from controlplane.configs.slices import gateway_pool
from controlplane.core.changes import SYSTEM, sections, unit_of_work
from controlplane.fleet.models import Pool
from controlplane.fleet.services.pools import PoolFields
from tests.controlplane.core.configuration import compiled
from tests.controlplane.fleet.conftest import MODEL, problem_paths
from wire import snapshot
from wire.problems import type_problems


def test_a_pool_compiles_into_its_wire_form(fleet):
    content = compiled("pools", "short")
    assert type_problems(content, snapshot.Pool) == []
    assert content["model"] == MODEL
    assert "ttft_slo_ms" not in content
    assert content["breaker"]["error_permille"] == 200


def test_breaker_thresholds_change_one_by_one(fleet):
    answer = fleet.patch("/pools/short", {"breaker": {"window_ms": 5000}}).json()
    assert answer["patch"] == {"pools": {"short": {"breaker": {"window_ms": 5000}}}}
    assert answer["item"]["breaker"]["minimum_requests"] == 20


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"model": "nobody"}, "/model"),
        ({"kv_admit_permille": 1001}, "/kv_admit_permille"),
        ({"work": "fast"}, "/work"),
        ({"breaker": {"error_permille": -1}}, "/breaker/error_permille"),
        ({"breaker": {"colour": 1}}, "/breaker/colour"),
        ({"breaker": None}, "/breaker"),
        ({"breaker": "open"}, "/breaker"),
        ({"ttft_slo_ms": 1.5}, "/ttft_slo_ms"),
        ({"engine_arguments": {"--max-num-seqs": 1}}, "/engine_arguments/--max-num-seqs"),
        ({"engine_arguments": {"max_num_seqs": 1}}, "/engine_arguments/max_num_seqs"),
        ({"engine_arguments": {"api-key": "sk-1"}}, "/engine_arguments"),
        ({"engine_arguments": {"gpu-memory-utilization": 0.9}}, "/engine_arguments/gpu-memory-utilization"),
        ({"engine_arguments": {"seed": "a\nb"}}, "/engine_arguments/seed"),
        ({"engine_arguments": {f"a{number}": 1 for number in range(65)}}, "/engine_arguments"),
        ({"engine_arguments": None}, "/engine_arguments"),
        ({"adapters": {"support": "adapters/support"}}, "/adapters/support"),
        ({"adapters": {"Support": "/adapters"}}, "/adapters/Support"),
    ],
)
def test_a_bad_field_is_refused_where_it_stands(fleet, fields, path):
    before = Pool.objects.values().get()
    assert problem_paths(fleet.patch("/pools/short", fields)) == {path}
    assert Pool.objects.values().get() == before


def test_a_pool_needs_a_model(admin):
    assert problem_paths(admin.post("/pools", {"name": "p"})) == {"/model"}


def test_a_pool_with_engines_is_not_deleted(fleet):
    refused = fleet.delete("/pools/short")
    assert refused.status_code == 409
    assert "engine 'e1'" in refused.json()["detail"]


def test_defaults_of_the_row_are_those_of_the_wire_format():
    ours = PoolFields(model="m").model_dump(exclude_none=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(snapshot.Pool)}
    # Nodes alone are told of the arguments, and gateways of the adapters' names.
    assert (ours.pop("engine_arguments"), ours.pop("adapters")) == ({}, {})
    for name in ours.keys() - {"model", "breaker"}:
        assert ours[name] == defaults[name], name
    assert ours["breaker"] == msgspec.structs.asdict(snapshot.BreakerThresholds())


def test_restoring_gives_the_same_content(fleet):
    section = sections["pools"]
    before = section.compile("short")
    fleet.patch("/pools/short", {"breaker": {"window_ms": 1}, "ttft_slo_ms": 1, "queue_cap": 1})
    with unit_of_work(SYSTEM, "a test") as unit:
        assert section.restore is not None
        section.restore(unit, "short", before)
    assert section.compile("short") == before


ARGUMENTS = {"max-num-seqs": 64, "enable-lora": True, "gpu-memory-utilization": "0.90"}
ADAPTERS = {"support": "/srv/adapters/support"}


def test_arguments_and_adapters_are_kept_and_only_the_adapters_names_are_for_gateways(fleet):
    answer = fleet.patch("/pools/short", {"engine_arguments": ARGUMENTS, "adapters": ADAPTERS}).json()
    assert (answer["item"]["engine_arguments"], answer["item"]["adapters"]) == (ARGUMENTS, ADAPTERS)
    content = compiled("pools", "short")
    assert type_problems(content, snapshot.Pool) == []
    assert content["adapters"] == {"support": True}
    seen = gateway_pool(content)
    assert seen == {field: content[field] for field in content.keys() - {"engine_arguments", "adapter_folders"}}
    fleet.patch("/pools/short", {"engine_arguments": {}, "adapters": {}})
    assert compiled("pools", "short").keys() == seen.keys() - {"adapters"}


def test_arguments_and_adapters_are_restored(fleet):
    section = sections["pools"]
    fleet.patch("/pools/short", {"engine_arguments": ARGUMENTS, "adapters": ADAPTERS})
    before = section.compile("short")
    fleet.patch("/pools/short", {"engine_arguments": {"seed": 1}, "adapters": {}})
    with unit_of_work(SYSTEM, "a test") as unit:
        assert section.restore is not None
        section.restore(unit, "short", before)
    assert section.compile("short") == before
