"""What tests ask of every detector: readings and fleets of any kind, and edits that their nouns take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from msgspec import UNSET

from controlplane.core import fields as f
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.diagnosis.applying import CORDONED, KINDS, write
from controlplane.diagnosis.detector import Command, Detector, Edit, Finding, Fleet, Lengths, Lever, Reading, Readings
from controlplane.diagnosis.texts import texts_of
from tests.controlplane.diagnosis import helpers
from wire.acts import read_act
from wire.snapshot import Act

# A fleet takes some milliseconds to draw.
few = settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
UNITS = {
    "ratio", "tokens", "requests", "per_second", "tokens_per_second", "seconds", "bytes", "count", "celsius", "watts",
}  # fmt: skip
_LABELS = {
    "pool": ("chat", "long", "gone"),
    "tenant": ("acme", "globex", "gone"),
    "engine": ("e1", "e2", "gone"),
    "node": ("n1", "gone"),
    "gpu": ("0", "1"),
    "peer": ("0", "1"),
    "link": ("NV18", "SYS"),
    "size": ("under_256", "under_1024", "larger"),
    "part": ("asked", "free", "unallocated"),
}
_values = st.floats(min_value=0, max_value=1e9, allow_nan=False) | st.sampled_from([0.0, 0.5, 0.96, 1.0, 2.0, 25.0])
_labels = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in _LABELS.items()})
_series = st.builds(Reading, _labels, _values)


def readings(detector: Detector) -> st.SearchStrategy[Readings]:
    """Any answers to its questions."""
    answers = {name: st.lists(_series, max_size=6).map(tuple) for name in detector.queries}
    return st.fixed_dictionaries(answers).map(Readings)


_tokens = st.integers(1, 100_000)
_quantiles = st.dictionaries(st.sampled_from([100, 500, 900, 950, 990]), _tokens, max_size=5)
_lengths = st.none() | st.builds(
    Lengths, st.integers(0, 5000), _quantiles, _quantiles, _quantiles
) | st.builds(helpers.lengths, _tokens, _tokens, _tokens)  # fmt: skip
_arguments = st.fixed_dictionaries(
    {},
    optional={
        "max_num_seqs": st.sampled_from(["256", "8", "none", "1e400"]),
        "max_num_batched_tokens": st.sampled_from(["8K", "2048"]),
        "tensor_parallel_size": st.sampled_from(["1", "2", "4"]),
        "gpu_memory_utilization": st.sampled_from(["0.9", "0.55", "much"]),
        "enforce_eager": st.sampled_from(["true", "false"]),
    },
)
_pool: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "kv_capacity_tokens": st.none() | st.integers(0, 1_000_000),
        "lengths": _lengths,
        "max_concurrency": st.none() | st.integers(1, 100),
        "kv_admit_permille": st.integers(0, 1000),
        "queue_cap": st.integers(0, 1000),
        "queue_ttl_ms": st.integers(0, 60_000),
        "ttft_slo_ms": st.none() | st.integers(0, 10_000),
        "tpot_slo_ms": st.none() | st.integers(0, 1000),
        "objective_permille": st.integers(0, 1000),
        "engine_arguments": st.sampled_from([{}, {"max-num-seqs": 512}, {"tp": 2, "kv-cache-dtype": "auto"}]),
    }
)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Pools chat and long of one model, an engine each, two tenants, two classes, a rule that leads to chat."""
    pools = [helpers.pool(name, engines=(engine,), **draw(_pool)) for name, engine in (("chat", "e1"), ("long", "e2"))]
    engines = [
        helpers.engine(
            name,
            pool=pool.row["name"],
            kind=draw(st.sampled_from(["vllm", "tgi"])),
            kv_capacity_tokens=pool.kv_capacity_tokens,
            arguments=draw(_arguments),
            model_bytes=draw(st.none() | st.integers(1, 200_000_000_000)),
        )
        for pool, name in zip(pools, ("e1", "e2"), strict=True)
    ]
    limits = {
        "weight": st.integers(1, 100),
        "tpm_limit": st.none() | st.integers(0, 10_000),
        "rpm_limit": st.none() | st.integers(0, 100),
        "max_parallel_requests": st.none() | st.integers(0, 100),
        "max_tokens_cap": st.none() | st.integers(1, 1000),
        "default_priority_class": st.sampled_from([None, "interactive", "gone"]),
    }
    tenants = [helpers.tenant(name, **draw(st.fixed_dictionaries(limits))) for name in ("acme", "globex")]
    default = draw(st.integers(1, 4096))
    return helpers.fleet(
        pools,
        engines=engines,
        tenants=tenants,
        gpus=[helpers.gpu(index=index) for index in (0, 1)],
        models=[helpers.model(default_max_tokens=default, max_tokens=draw(st.integers(default, 8192)))],
        priority_classes=[helpers.priority_class(), helpers.priority_class("batch", 90)],
        routes=[helpers.route(order=draw(st.sampled_from([0, 10])))],
    )


def check(found: Iterable[Finding], fleet: Fleet) -> None:
    """What holds of all findings: one a subject, numbers that can be drawn, texts, edits that hold."""
    all_found = list(found)
    subjects = [each.subject for each in all_found]
    assert len(subjects) == len(set(subjects))
    for each in all_found:
        assert 0 < each.confidence_permille < 1000
        assert each.evidence
        assert all(part.unit in UNITS and math.isfinite(part.value) for part in each.evidence)
        assert texts_of(each.summary)["en"]
        keys = [lever.key for lever in each.levers]
        assert len(keys) == len(set(keys))
        for lever in each.levers:
            check_lever(lever, fleet)


def check_lever(lever: Lever, fleet: Fleet) -> None:
    assert lever.edits or lever.commands or lever.advice
    assert texts_of(lever.title)["en"]
    assert texts_of(lever.why)["en"]
    for edit in lever.edits:
        _check_edit(edit, fleet)
    for command in lever.commands:
        _check_command(command, fleet)


def _check_edit(edit: Edit, fleet: Fleet) -> None:
    """By the noun's own fields, as a write checks them; and it must change something."""
    noun = KINDS[edit.noun].noun
    if edit.changes.keys() == {CORDONED}:
        assert _row(edit, fleet)[CORDONED] is not edit.changes[CORDONED]
        return
    if edit.create:
        f.read(noun.new_fields, {**edit.changes, "name": edit.key})
        return
    now = _row(edit, fleet)
    settable = {name: now[name] for name in noun.fields.model_fields if name in now}
    then = f.merged(noun.fields, settable, edit.changes)
    assert then != settable
    f.read(noun.fields, then)


def _check_command(command: Command, fleet: Fleet) -> None:
    """What an agent would do: an act that the wire has for it, and that its node's policy allows."""
    what, _, name = command.subject.partition("/")
    engine = fleet.engines[name] if what == "engine" else None
    act = Act(command.action, 0, 0, 1, name if engine else UNSET, dict(command.arguments))
    read_act(act, engine["kind"] if engine else None)
    allowed = fleet.nodes[engine["node"] if engine else name]["allowed_acts"]
    assert command.action in allowed[name if engine else ""]


def _row(edit: Edit, fleet: Fleet) -> Mapping[str, Any]:
    rows: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
        "pools": {name: pool.row for name, pool in fleet.pools.items()},
        "tenants": fleet.tenants,
        "models": fleet.models,
        "nodes": fleet.nodes,
        "engines": fleet.engines,
        "session-limits": fleet.session_limits,
        "cache-policies": fleet.cache_policies,
        "routes": {row["name"]: row for row in fleet.routes},
    }
    return rows[edit.noun][edit.key]


def dry_run(finding: Finding) -> None:
    """All its edits through the services, one lever after another, on the rows that the test has stored."""
    for lever in finding.levers:
        edits = [
            {"noun": edit.noun, "key": edit.key, "changes": dict(edit.changes), "create": edit.create}
            for edit in lever.edits
        ]
        with unit_of_work(SYSTEM, f"lever {lever.key}", dry_run=True) as unit:
            write(unit, edits)
