"""Readings and fleets of any kind for rows 11 to 20: sessions, caches, starts, events, what agents may do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from controlplane.core.fields import iso
from controlplane.diagnosis.detector import Detector, Fleet, Reading, Readings
from controlplane.fleet.cold_start import cold_start
from tests.controlplane.diagnosis import helpers

ENGINE_ACTS = ("drain", "restart", "stop", "pause", "resume", "warm_up")
NODE_ACTS = ("reset_gpu", "reboot", "fetch_model", "release_gpus")
GPU = "GPU-00000000-0000-0000-0000-000000000000"
MANIFEST = "ab" * 32
_LABELS = {
    "pool": ("chat", "small", "vectors", "gone"),
    "tenant": ("acme", "globex", "gone"),
    "engine": ("e1", "e2", "gone"),
    "node": ("n1", "gone"),
    "gpu": ("0",),
    "UUID": (GPU, "GPU-other"),
    "gateway": ("g1", "g2"),
    "reason": ("engine_error",),
}
_values = st.floats(min_value=0, max_value=1e9, allow_nan=False) | st.sampled_from(
    [0.0, 0.5, 0.9, 1.0, 4.0, 40.0, 300.0]
)
_labels = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in _LABELS.items()})
_series = st.builds(Reading, _labels, _values)


def readings(detector: Detector) -> st.SearchStrategy[Readings]:
    """Any answers to its questions."""
    answers = {name: st.lists(_series, max_size=6).map(tuple) for name in detector.queries}
    return st.fixed_dictionaries(answers).map(Readings)


_limits: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {
        "max_iterations": st.none() | st.integers(1, 100),
        "max_tokens": st.none() | st.integers(1, 100_000),
        "max_repeated_calls": st.none() | st.integers(1, 5),
    }
)


def _semantic(permille: int) -> dict[str, Any]:
    return {
        "embedding_model": "bge", "similarity_permille": permille, "ttl_ms": 1000, "max_entries": 10,
        "only_verified": True, "time_bound": [], "time_bound_ttl_ms": 1000,
    }  # fmt: skip


_caches: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {
        "exact": st.none() | st.fixed_dictionaries({"ttl_ms": st.just(1000), "max_entries": st.integers(1, 10_000)}),
        "semantic": st.none() | st.integers(0, 1000).map(_semantic),
    }
)
_tenant: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {
        "weight": st.integers(1, 100),
        "max_parallel_requests": st.none() | st.integers(0, 100),
        "session_limits": st.sampled_from([None, "agents"]),
        "cache_policy": st.sampled_from([None, "faq"]),
    }
)
_PHASES = ("load_weights", "load_model", "init_engine", "torch_compile", "total")
_phases = st.fixed_dictionaries({}, optional={name: st.integers(0, 600_000) for name in _PHASES})
_budget = st.fixed_dictionaries({}, optional={name: st.integers(1, 600_000) for name in ("load_weights", "total")})
_arguments = st.fixed_dictionaries(
    {},
    optional={
        "api_server_count": st.sampled_from(["1", "4", "many"]),
        "stream_interval": st.sampled_from(["1", "2"]),
    },
)


def xid(number: int, action: str, severity: str, **changes: Any) -> Any:
    """The event of an XID, as agents word it."""
    detail = f"XID {number} (A fault) on GPU 0 (NVIDIA H100, 0000:01:00.0): class hardware, action {action}"
    return helpers.event("xid", GPU, severity=severity, **{"detail": detail, **changes})


@st.composite
def _events(draw: st.DrawFn) -> list[Any]:
    found = []
    for number in range(draw(st.integers(0, 4))):
        at = iso(helpers.AT - timedelta(seconds=draw(st.integers(0, 3600))))
        kind = draw(st.sampled_from(["xid", "gpu_lost", "gpu_recovered", "engine_restarted", "engine_hung"]))
        severity = draw(st.sampled_from(["info", "warning", "critical"]))
        changes: Any = {
            "at": at,
            "id": f"event-{number}",
            "incident_state": draw(st.sampled_from([None, "firing", "resolved"])),
        }
        if kind == "xid":
            action = draw(st.sampled_from(["none", "restart_app", "reset_gpu", "cordon_reboot"]))
            found.append(xid(draw(st.sampled_from([13, 48, 79])), action, severity, **changes))
        else:
            subject = draw(st.sampled_from(["e1", GPU]))
            found.append(helpers.event(kind, subject, severity=severity, **{**changes, "detail": "words"}))
    return found


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Pool chat of engines e1 and e2, a small one, one of vectors; two tenants; events of the hour."""
    pools = [
        helpers.pool(
            "chat", engines=draw(st.sampled_from([("e1", "e2"), ("e1",), ()])), lengths=helpers.lengths(),
            max_concurrency=draw(st.none() | st.integers(1, 100)), tpot_slo_ms=draw(st.none() | st.integers(1, 100)),
            objective_permille=draw(st.integers(0, 1000)),
        ),
        helpers.pool("small", engines=("s1",), model="tiny"),
        helpers.pool("vectors", engines=("v1",), model="bge", work="embedding",
                     max_concurrency=draw(st.none() | st.integers(1, 100))),
    ]  # fmt: skip
    engines = []
    for name, pool in (("e1", "chat"), ("e2", "chat"), ("s1", "small"), ("v1", "vectors")):
        phases = draw(_phases)
        started = helpers.AT - timedelta(seconds=draw(st.integers(0, 7200)))
        engines.append(
            helpers.engine(
                name, pool=pool, kind=draw(st.sampled_from(["vllm", "tgi", "triton"])), arguments=draw(_arguments),
                state=draw(st.sampled_from(["up", "down", "starting"])),
                started_at=draw(st.sampled_from([None, iso(started)])),
                start_phases_ms=phases, cold_start=cold_start(phases, draw(_budget)), cordoned=draw(st.booleans()),
            )
        )  # fmt: skip
    allowed = {name: list(draw(st.sampled_from([(), ENGINE_ACTS]))) for name in ("e1", "e2", "s1", "v1")}
    allowed[""] = list(draw(st.sampled_from([(), NODE_ACTS])))
    model: Any = {"manifest": draw(st.sampled_from([None, MANIFEST])), "files_folder": "/srv/models/llama",
             "cache_policy": draw(st.sampled_from([None, "faq"])), "cold_start_budget_ms": draw(_budget)}  # fmt: skip
    tiny = helpers.model("tiny", kv_bytes_per_token=draw(st.sampled_from([0, 1000, 131_072])))
    return helpers.fleet(
        pools,
        engines=engines,
        nodes=[helpers.node(allowed_acts=allowed, cordoned=draw(st.booleans()))],
        gpus=[helpers.gpu(uuid=GPU, state=draw(st.sampled_from(["ok", "lost"])))],
        models=[helpers.model(**model), tiny, helpers.model("bge")],
        tenants=[helpers.tenant(name, **draw(_tenant)) for name in ("acme", "globex")],
        session_limits=[helpers.session_limits(**draw(_limits))],
        cache_policies=[helpers.cache_policy(**draw(_caches))],
        routes=[helpers.route(pools={"chat": 1000})],
        events=draw(_events()),
        tenants_of={"chat": {"acme": 0.7, "globex": 0.3}},
    )  # fmt: skip
