"""Whatever document is applied, the same is exported; and where one came from leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from controlplane.configs.bulk import apply_document
from controlplane.configs.checks import contents
from controlplane.configs.document import FORMAT, document_now
from controlplane.configs.document_text import read_document
from controlplane.configs.edits import checked_document
from controlplane.configs.models import Fragment
from controlplane.configs.step import compile_touched
from controlplane.core.changes import SYSTEM, UnitOfWork, sections, unit_of_work
from controlplane.core.yaml_text import write_yaml

limits = st.integers(0, 2**40)
# What YAML readers may take for something else than a text, and what sorts oddly.
names = st.sampled_from(["a", "b-1", "1e5", "007", "on", "null", "0x1f", "12", "true"])
some_names = st.lists(names, unique=True, max_size=4)


def some_of(pool: list[str], **kwargs: Any) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(pool), unique=True, **kwargs).map(sorted) if pool else st.just([])


hours = st.fixed_dictionaries(
    {"from": st.sampled_from(["22:00", "00:00"]), "until": st.just("06:30"), "rpm_limit": limits},
    optional={"days": st.just(["monday", "sunday"]), "order": st.integers(0, 9), "tpm_limit": limits},
)


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """Documents that hold together, in the form in which they are exported."""
    models, classes, session_limits, policies, pools, tenants = (draw(some_names) for _ in range(6))
    aliases = [name for name in draw(some_names) if name not in models]

    def entries(keys: list[str], fields: Any) -> Any:
        return {key: draw(fields) for key in sorted(keys)}

    tenant = {
        "display_name": st.sampled_from(["Müşteri & <b>", "客户", "on", "a: b # c"]),
        "tpm_limit": limits,
        "blocked": st.just(True),
        "max_tokens_cap": st.integers(1, 2**40),
        "time_zone": st.just("Europe/Istanbul"),
        "schedule": st.dictionaries(names, hours, min_size=1, max_size=3),
        "models": some_of(models),
    }
    tenant |= {"default_priority_class": st.sampled_from(classes)} if classes else {}
    tenant |= {"session_limits": st.sampled_from(session_limits)} if session_limits else {}
    tenant |= {"cache_policy": st.sampled_from(policies)} if policies else {}
    match = {"models": some_of(models, min_size=1), "min_prompt_tokens": limits} if models else {}
    led = {"pools": st.sampled_from(pools).map(lambda pool: {pool: 1000})} if pools else {}
    policy = st.fixed_dictionaries({"exact": st.just({"ttl_ms": 5}) | st.just({})})
    breaker = st.just({"window_ms": 7})
    desired = {
        "engine_arguments": st.just({"max-num-seqs": 64, "enable-lora": True, "gpu-memory-utilization": "0.9"}),
        "adapters": st.just({"support": "/srv/adapters/support"}),
    }
    pool = st.fixed_dictionaries({"model": st.sampled_from(models or ["-"])}, optional={"breaker": breaker} | desired)
    engine = st.fixed_dictionaries(
        {"url": st.just("http://10.0.0.1:8000"), "pool": st.sampled_from(pools or ["-"]), "served_model": st.just("m")},
        optional={"kv_capacity_tokens": limits, "kind": st.just("sglang")},
    )
    with_models, with_pools = bool(models), bool(models and pools)
    return {
        "format": FORMAT,
        "cache_policies": entries(policies, policy),
        "models": entries(
            models,
            st.fixed_dictionaries(
                {"max_context_tokens": st.integers(1, 9999)}, optional={"kv_bytes_per_token": st.just(9)}
            ),
        ),
        "aliases": entries(
            aliases if with_models else [], st.fixed_dictionaries({"model": st.sampled_from(models or ["-"])})
        ),
        "pools": entries(pools if with_models else [], pool),
        "session_limits": entries(session_limits, st.fixed_dictionaries({}, optional={"max_depth": limits})),
        "priority_classes": entries(
            classes, st.fixed_dictionaries({"rank": st.integers(0, 99)}, optional={"shed_order": st.just(3)})
        ),
        "tenants": entries(tenants, st.fixed_dictionaries({}, optional=tenant)),
        # Every pool has an engine, so that any may be routed to.
        "engines": {f"{name}-{at}": {**draw(engine), "pool": name} for at, name in enumerate(sorted(pools))}
        if with_pools
        else {},
        "routes": entries(
            draw(some_names),
            st.fixed_dictionaries(
                led, optional={"match": st.fixed_dictionaries({}, optional=match).filter(bool)} if match else {}
            ),
        )
        if with_pools
        else {},
    }


def apply(unit: UnitOfWork, document: Any) -> Any:
    """Apply it through its text; answers what it compiles to."""
    given = checked_document(read_document(write_yaml(document).encode(), json=False))
    apply_document(unit, document_now(), given, allow_removals=True)
    compile_touched(unit)
    written = [name for name, section in sections.items() if section.written is not None]
    return {name: contents(Fragment.objects.filter(section=name)) for name in written}


@pytest.mark.django_db
# Shrinking would take minutes, each example writing many rows.
@settings(max_examples=30, deadline=None, phases=[Phase.generate])
@given(documents(), documents())
def test_it_is_exported_as_it_was_applied_whatever_was_there_before(first: Any, second: Any) -> None:
    # A dry run keeps nothing: each example begins with an empty installation.
    with unit_of_work(SYSTEM, "a test", dry_run=True) as unit:
        compiled = apply(unit, first)
        assert document_now() == first
        unit.changes.clear()
        assert apply(unit, first) == compiled
        assert unit.changes == []
        apply(unit, second)
        assert document_now() == second
        assert apply(unit, first) == compiled
