"""What people call a tenant: any script in, the same out, and nothing of it to gateways."""

from __future__ import annotations

import pytest
import yaml

from controlplane.configs.slices import gateway_content, gateway_tenant
from controlplane.core.changes import SYSTEM, sections, unit_of_work
from controlplane.tenants.models import Tenant
from tests.controlplane.core.configuration import compiled
from wire.canonical import content_hash

HOSTILE = "\"Müşteri & <script>alert('x')</script>\" 客户"
NAMES = [HOSTILE, "شركة المثال", "मुंबई दफ़्तर", "👩\u200d🔬 lab", "a\u200fb", "ş" * 120]


def problems_of(answer):
    assert answer.status_code == 422, answer.content
    return [(problem["path"], problem["rule"], problem["message"]) for problem in answer.json()["problems"]]


@pytest.mark.parametrize("name", NAMES)
def test_it_comes_back_as_it_was_given(operator, name):
    made = operator.post("/tenants", {"name": "acme", "display_name": f"  {name} "})
    assert made.status_code == 201, made.content
    assert made.json()["item"]["display_name"] == name
    operator.patch("/tenants/acme", {"weight": 2})
    assert operator.get("/tenants/acme").json()["display_name"] == name
    assert [row["display_name"] for row in operator.get("/tenants").json()["items"]] == [name]
    operator.patch("/tenants/acme", {"display_name": ""})
    assert operator.get("/tenants/acme").json()["display_name"] == ""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("one\ntwo", "U+000A"),
        ("bell\x07", "U+0007"),
        ("tab\tbed", "U+0009"),
        ("a\x85b", "U+0085"),
        ("two\u2028lines", "U+2028"),
        ("turned\u202earound", "U+202E"),
    ],
)
def test_a_control_character_is_refused_by_its_name(operator, name, says):
    ((path, rule, message),) = problems_of(operator.post("/tenants", {"name": "acme", "display_name": name}))
    assert (path, rule) == ("/display_name", "control_character")
    assert says in message
    assert not Tenant.objects.exists()


@pytest.mark.parametrize(("name", "rule"), [("x" * 121, "string_too_long"), (None, "string_type"), (7, "string_type")])
def test_what_is_no_display_name_is_refused(operator, name, rule):
    ((path, said, _),) = problems_of(operator.post("/tenants", {"name": "acme", "display_name": name}))
    assert (path, said) == ("/display_name", rule)


def test_gateways_are_told_nothing_of_it(operator):
    operator.post("/tenants", {"name": "acme", "tpm_limit": 5})
    without = compiled("tenants", "acme")
    assert gateway_tenant(without) is without
    operator.patch("/tenants/acme", {"display_name": HOSTILE})
    named = compiled("tenants", "acme")
    assert named == {**without, "display_name": HOSTILE}
    told, before = (gateway_content({"tenants": {"acme": each}}, {}) for each in (named, without))
    assert content_hash(told) == content_hash(before)


def test_a_rollback_restores_it(operator):
    operator.post("/tenants", {"name": "acme", "display_name": HOSTILE})
    before = compiled("tenants", "acme")
    operator.patch("/tenants/acme", {"display_name": "Other", "weight": 3})
    restore = sections["tenants"].restore
    assert restore is not None
    with unit_of_work(SYSTEM, "a test") as unit:
        restore(unit, "acme", before)
    assert operator.get("/tenants/acme").json()["display_name"] == HOSTILE


def test_the_whole_configuration_as_a_text_has_it_and_sets_it(admin):
    admin.post("/tenants", {"name": "acme", "display_name": HOSTILE})
    document = yaml.safe_load(admin.get("/config", headers={"accept": "application/yaml"}).content)
    assert document["tenants"] == {"acme": {"display_name": HOSTILE}}
    document["tenants"]["acme"]["display_name"] = "客户"
    assert admin.put("/config?reason=renamed", document).status_code == 200
    assert admin.get("/tenants/acme").json()["display_name"] == "客户"
